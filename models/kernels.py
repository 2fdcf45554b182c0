"""The small steps of a decoding pass on the CPU, in float32, compiled by numba: norm, rotary attention over the ring, SwiGLU.

A pass of one row is a hundred operators of a few microseconds each in torch; here it is three calls a layer. Every row is computed by
itself, in the same order of sums whatever rows are beside it. Compiled at first use, kept on disk by numba. Knows arrays only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numba
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

# Sums may be split into vector lanes: the same way every time, for the split depends on a row's own lengths alone.
_FAST = {"reassoc", "contract", "nsz", "arcp", "nnan"}
_LOG2_E = np.float32(1.4426950408889634)


@numba.njit(fastmath=_FAST, cache=True, nogil=True)
def add_and_norm(x: Floats, added: Floats, scale: Floats, eps: np.float32, out: Floats) -> None:
    """``x`` [N, width] += ``added``; ``out`` = RMSNorm of ``x`` times ``scale`` [width] (Zhang and Sennrich 2019)."""
    width = x.shape[1]
    for n in range(x.shape[0]):
        total = np.float32(0)
        for i in range(width):
            value = x[n, i] + added[n, i]
            x[n, i] = value
            total += value * value
        factor = np.float32(1) / np.sqrt(total / np.float32(width) + eps)
        for i in range(width):
            out[n, i] = x[n, i] * factor * scale[i]


@numba.njit(fastmath=_FAST, cache=True, nogil=True)
def swiglu(gate_up: Floats, out: Floats) -> None:
    """``gate_up`` [N, 2 hidden] -> ``out`` [N, hidden]: SiLU of the first half times the second (Shazeer 2020)."""
    hidden = out.shape[1]
    for n in range(out.shape[0]):
        for i in range(hidden):
            gate = gate_up[n, i]
            out[n, i] = gate / (np.float32(1) + np.exp(-gate)) * gate_up[n, hidden + i]


@numba.njit(fastmath=_FAST, cache=True, nogil=True)
def rotate_and_store(joined: Floats, cos: Floats, sin: Floats, places: Ints, store: Floats) -> None:
    """Rotate queries and keys in place and put keys and values into the ring.

    ``joined`` [N, heads + 2 kv_heads, hw] (q, k, v), ``cos``/``sin`` [N, hw / 2], ``places`` [N] in ``store`` [places, 2, kv_heads, hw].
    """
    kv_heads, width = store.shape[2], store.shape[3]
    half = width // 2
    turning = joined.shape[1] - kv_heads
    for n in range(joined.shape[0]):
        for h in range(turning):
            for i in range(half):
                first, second = joined[n, h, i], joined[n, h, half + i]
                joined[n, h, i] = first * cos[n, i] - second * sin[n, i]
                joined[n, h, half + i] = second * cos[n, i] + first * sin[n, i]
        place = places[n]
        for h in range(kv_heads):
            for i in range(width):
                store[place, 0, h, i] = joined[n, turning - kv_heads + h, i]
                store[place, 1, h, i] = joined[n, turning + h, i]


@numba.njit(fastmath=_FAST, cache=True, nogil=True, inline="never")
def _weights(scores: Floats, count: int, powers: npt.NDArray[np.int32], as_float: Floats) -> np.float32:
    """exp(score - greatest) in place for the first ``count`` -> their sum. ``as_float`` is ``powers`` seen as float32.

    2^y as 2^floor(y), made of bits, times a polynomial of the rest; vectorisable. The error is that of rounding y.
    """
    greatest = np.float32(-1e30)
    for j in range(count):
        greatest = max(greatest, scores[j])
    for j in range(count):
        y = max((scores[j] - greatest) * _LOG2_E, np.float32(-126.0))
        whole = np.floor(y)
        rest = y - whole
        powers[j] = (np.int32(whole) + np.int32(127)) << np.int32(23)
        value = np.float32(1.8775767e-3) * rest + np.float32(8.9893397e-3)
        value = value * rest + np.float32(5.5826318e-2)
        value = value * rest + np.float32(2.4015361e-1)
        value = value * rest + np.float32(6.9315308e-1)
        scores[j] = value * rest + np.float32(9.9999994e-1)
    total = np.float32(0)
    for j in range(count):
        weight = scores[j] * as_float[j]
        scores[j] = weight
        total += weight
    return total


@functools.cache
def attention(width: int) -> Callable[..., None]:
    """``attend`` for heads of ``width``: a constant, for inner loops of known length are twice as fast."""

    @numba.njit(fastmath=_FAST, cache=True, nogil=True)
    def attend(
        joined: Floats,
        positions: Ints,
        places: Ints,
        store: Floats,
        capacity: int,
        window: int,
        scores: Floats,
        powers: npt.NDArray[np.int32],
        as_float: Floats,
        out: Floats,
    ) -> None:
        """Attention of every query over the last ``window`` positions of its ring, its own included: ``out`` [N, heads x hw].

        ``positions`` [N] in the stream, ``places`` [N] in ``store``; scratch ``scores``, ``powers``, ``as_float`` [window].
        """
        kv_heads = store.shape[2]
        heads = joined.shape[1] - 2 * kv_heads
        groups = heads // kv_heads
        scale = np.float32(1.0) / np.sqrt(np.float32(width))
        for n in range(joined.shape[0]):
            position = positions[n]
            ring = places[n] - position % capacity  # where the ring begins in the store
            first = max(0, position - window + 1)
            count = position - first + 1
            start = first % capacity
            before_wrap = min(count, capacity - start)
            for h in range(heads):
                g = h // groups
                for part in range(2):  # up to the end of the ring, then from its beginning
                    low, high = (0, before_wrap) if part == 0 else (before_wrap, count)
                    offset = ring + start if part == 0 else ring - before_wrap
                    for j in range(low, high):
                        total = np.float32(0)
                        for i in range(width):
                            total += joined[n, h, i] * store[offset + j, 0, g, i]
                        scores[j] = total * scale
                share = np.float32(1) / _weights(scores, count, powers, as_float)
                column = h * width
                for i in range(width):
                    out[n, column + i] = 0
                for part in range(2):
                    low, high = (0, before_wrap) if part == 0 else (before_wrap, count)
                    offset = ring + start if part == 0 else ring - before_wrap
                    j = low
                    while j + 4 <= high:  # four at a time: fewer passes over the sum
                        a, b, c, d = scores[j], scores[j + 1], scores[j + 2], scores[j + 3]
                        at = offset + j
                        for i in range(width):
                            out[n, column + i] += (
                                a * store[at, 1, g, i]
                                + b * store[at + 1, 1, g, i]
                                + c * store[at + 2, 1, g, i]
                                + d * store[at + 3, 1, g, i]
                            )
                        j += 4
                    while j < high:
                        for i in range(width):
                            out[n, column + i] += scores[j] * store[offset + j, 1, g, i]
                        j += 1
                for i in range(width):
                    out[n, column + i] *= share

    compiled: Callable[..., None] = attend
    return compiled
