"""Keyed noise: the value for (seed, stream, position, option) or (seed, stream, use, round) is fixed, whenever it is asked for.

Gumbel noise is for coupled mode, where target and drafter share it; uniform noise is for ratio mode, where every use must have its own.
Counter-based (Philox 4x64, Salmon et al. 2011), from the generator's raw output, whose stream NumPy guarantees. Knows no model.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

_BLOCK = 64  # positions made at once; part of the definition, never change it
_AT_ONCE = 8  # of them go through the processor's cache together; even, for a raw number is noise of two options
_KEPT = 3  # blocks kept, so that a rollback finds its noise again


class GumbelNoise:
    """Standard Gumbel noise of one stream: ``at(t)`` is float32 [options], the same at every call."""

    def __init__(self, seed: int, stream: int, options: int) -> None:
        self._key = (seed, stream)
        self._options = options
        self._blocks: dict[int, npt.NDArray[np.float32]] = {}

    def at(self, position: int) -> npt.NDArray[np.float32]:
        """Noise of ``position`` (0, 1, ...), read-only."""
        block, row = divmod(position, _BLOCK)
        noise: npt.NDArray[np.float32] = self._of(block)[row]
        return noise

    def line(self, position: int, count: int) -> npt.NDArray[np.float32]:
        """That of ``count`` positions, at most 64, side by side."""
        block, row = divmod(position, _BLOCK)
        noise = self._of(block)[row : row + count]
        if len(noise) < count:
            noise = np.concatenate([noise, self._of(block + 1)[: count - len(noise)]])
        return noise

    def _of(self, block: int) -> npt.NDArray[np.float32]:
        if block not in self._blocks:
            self._blocks[block] = self._make(block)
            for old in [known for known in self._blocks if known <= block - _KEPT]:
                del self._blocks[old]
        return self._blocks[block]

    def _make(self, block: int) -> npt.NDArray[np.float32]:
        philox = np.random.Philox(key=np.array(self._key, np.uint64), counter=np.array([0, block, 0, 0], np.uint64))
        noise = np.empty((_BLOCK, self._options), np.float32)
        values = np.empty((_AT_ONCE, self._options))
        for first in range(0, _BLOCK, _AT_ONCE):
            halves = philox.random_raw(values.size // 2).view(np.uint32)
            values[:] = halves.reshape(values.shape) >> 8
            values += 0.5
            values *= 2.0**-24  # uniform, never 0, never 1
            for _ in range(2):
                np.negative(np.log(values, out=values), out=values)
            noise[first : first + _AT_ONCE] = values
        noise.flags.writeable = False
        return noise


class Use(IntEnum):
    """What uniform noise decides. Two uses never share a value: that would bias the output (vLLM pull request 54282)."""

    DRAFT = 1
    ACCEPT = 2
    RESIDUAL = 3


class UniformNoise:
    """Uniform noise in [0, 1), 53 bits, of one stream. Its counters are none of ``GumbelNoise``'s under the same key."""

    def __init__(self, seed: int, stream: int) -> None:
        self._key = (seed, stream)

    def of_round(self, use: Use, start: int, count: int) -> npt.NDArray[np.float64]:
        """``count`` values for positions ``start`` and after in the round that begins at ``start``: float64 [count].

        A position that is drafted again in a later round gets other values.
        """
        philox = np.random.Philox(key=np.array(self._key, np.uint64), counter=np.array([0, start, 0, use], np.uint64))
        return (philox.random_raw(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
