"""The static KV cache: one ring of positions per stream (slot), rollback by setting a length.

The ring is ``window + MAX_ROWS`` long: a pass may write up to MAX_ROWS new positions and every one still sees its whole window.
Whatever a rejected draft left behind lies beyond the length or outside every window, and is written over before it can be seen.
A pass always reads the whole ring, empty slots masked, so that sums run in the same order however many rows it has.
Knows no tokens and no layers' insides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from models.rope import position_angles
from models.transformer_config import TransformerConfig

MAX_ROWS = 16  # new positions in one pass
QUERY_MULTIPLE = (
    4  # queries are padded to a multiple: matrix products of 1 to 3 rows add in another order than larger ones
)


@dataclass(frozen=True, slots=True)
class PassLayout:
    """Where one pass of N new positions reads and writes; the same for every layer.

    Positions lie flat, those of one slot side by side. Attention wants them as a block [B, R] over ``slots`` = B slots next to each other,
    R the most positions of one; ``spread`` makes the block of the flat positions, ``gather`` undoes it; both None when nothing moves.
    """

    cos: Tensor  # [N, 1, head_width]
    sin: Tensor  # the same, its first half negated: what a vector's swapped halves are multiplied with
    places: Tensor  # [N] where to write: slot x capacity + ring place
    slots: slice
    spread: Tensor | None  # [B R] index of the flat position; of any one where a slot has fewer
    gather: Tensor | None  # [N] index in the block
    rows: int  # R
    mask: Tensor  # [B, 1, Q, capacity] 0 where visible, -inf elsewhere; Q = R x heads per kv head, padded


@dataclass(frozen=True, slots=True)
class FlatLayout:
    """What the compiled kernels need of the same pass."""

    cos: npt.NDArray[np.float32]  # [N, head_width / 2]
    sin: npt.NDArray[np.float32]
    positions: npt.NDArray[np.int64]  # [N] in the stream
    places: npt.NDArray[np.int64]  # [N] where to write: slot x capacity + ring place


class KvCache:
    """Keys and values of ``slots`` streams. ``lengths[s]`` positions of slot s are committed; ``rewind`` rolls back."""

    def __init__(
        self, config: TransformerConfig, slots: int, dtype: torch.dtype, device: torch.device | str = "cpu"
    ) -> None:
        self.config = config
        self.capacity = config.window + MAX_ROWS
        shape = (config.layers, slots, self.capacity, 2, config.kv_heads, config.head_width)
        self.store = torch.zeros(shape, dtype=dtype, device=device)
        self._flat = [layer.flatten(0, 1) for layer in self.store]  # [slots capacity, 2, kv_heads, hw] each
        self._layers = [layer.permute(2, 0, 3, 1, 4) for layer in self.store]  # [2, slots, kv_heads, capacity, hw] each
        self._arrays: list[npt.NDArray[np.float32]] | None = None
        self._ring = np.arange(self.capacity)
        self.lengths = [0] * slots
        self._written = [0] * slots  # positions below which anything was ever written, since position 0

    @property
    def nbytes(self) -> int:
        """Bytes of the preallocated store."""
        return self.store.nbytes

    def rewind(self, slot: int, length: int) -> None:
        """Set the length of ``slot``, at most to what it is.

        Raises ValueError when ``length`` lies beyond what is held, or so far back that the ring has written over what must be seen.
        """
        if not 0 <= length <= self.lengths[slot]:
            raise ValueError(f"length is {length}; only {self.lengths[slot]} positions are cached")
        written = self._written[slot] if length else 0
        if written > self.capacity and written - length > MAX_ROWS:
            raise ValueError(f"length is {length}; {written} positions were written, at most {MAX_ROWS} can be undone")
        self.lengths[slot], self._written[slot] = length, written

    def flat_layout(self, counts: Sequence[int]) -> FlatLayout:
        """Like ``layout``, for the compiled kernels."""
        _check(counts)
        number = np.array(counts)
        slots = np.repeat(np.arange(len(counts)), number)
        ends = np.cumsum(number)
        within = np.arange(ends[-1]) - np.repeat(ends - number, number)
        positions = np.array(self.lengths[: len(counts)])[slots] + within
        half = self.config.head_width // 2
        angles = positions[:, None] * self.config.rope_base ** (-np.arange(half) / half)
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        return FlatLayout(cos, sin, positions, slots * self.capacity + positions % self.capacity)

    def arrays(self) -> list[npt.NDArray[np.float32]]:
        """The store of each layer as an array [slots x capacity, 2, kv_heads, head_width] in the same memory."""
        if self._arrays is None:
            self._arrays = [flat.numpy() for flat in self._flat]
        return self._arrays

    def layout(self, counts: Sequence[int]) -> PassLayout:
        """Layout of a pass of ``counts[s]`` new positions in each slot s; slots past the end of ``counts`` have none.

        Raises ValueError when there are none at all, or more than MAX_ROWS in one slot.
        """
        _check(counts)
        rows = max(counts)
        config = self.config
        used = [slot for slot, count in enumerate(counts) if count]
        first, end = used[0], used[-1] + 1
        number = np.array(counts[first:end])  # [B]
        lengths = np.array(self.lengths[first:end])
        block = lengths[:, None] + np.arange(rows)  # [B, R] positions
        real = np.arange(rows) < number[:, None]
        # How far back the position a ring place holds lies; places of later positions, also of rejected ones, come out beyond the window.
        distance = (block[:, :, None] - self._ring) % self.capacity  # [B, R, capacity]
        visible = distance < np.minimum(block + 1, config.window)[:, :, None]
        groups = config.heads // config.kv_heads
        queries = -(-rows * groups // QUERY_MULTIPLE) * QUERY_MULTIPLE
        # Padding sees everything: never an empty row.
        mask = np.zeros((len(number), 1, queries, self.capacity), np.float32)
        mask[:, 0, : rows * groups] = np.where(visible, np.float32(0), np.float32("-inf")).repeat(groups, axis=1)
        positions = block[real]  # [N]
        slots = np.repeat(np.arange(first, end), number)
        spread = gather = None
        if not real.all():
            flat = np.zeros(real.shape, np.int64)
            flat[real] = np.arange(len(positions))
            spread, gather = self._index(flat.ravel()), self._index(np.flatnonzero(real))
        cos, sin = position_angles(positions, config.head_width, config.rope_base)
        return PassLayout(
            cos=self._tensor(cos[:, None]),
            sin=self._tensor(sin[:, None]),
            places=self._index(slots * self.capacity + positions % self.capacity),
            slots=slice(first, end),
            spread=spread,
            gather=gather,
            rows=rows,
            mask=self._tensor(mask),
        )

    def write(self, layer: int, kv: Tensor, layout: PassLayout) -> tuple[Tensor, Tensor]:
        """Store ``kv`` [N, 2, kv_heads, hw] of the new positions -> the block's keys and values [B, kv_heads, capacity, hw]."""
        self._flat[layer].index_copy_(0, layout.places, kv)
        keys, values = self._layers[layer][:, layout.slots]
        return keys, values

    def advance(self, counts: Sequence[int]) -> None:
        """Count the new positions of a pass as written."""
        for slot, count in enumerate(counts):
            self.lengths[slot] += count
            self._written[slot] = max(self._written[slot], self.lengths[slot])

    def _tensor(self, values: npt.NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(values).to(self.store.device, self.store.dtype)

    def _index(self, values: npt.NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(values).to(self.store.device)


def _check(counts: Sequence[int]) -> None:
    if not 1 <= max(counts, default=0) <= MAX_ROWS or min(counts) < 0:
        raise ValueError(f"counts is {list(counts)}; allowed: 0 to {MAX_ROWS} for each slot, one of them at least 1")
