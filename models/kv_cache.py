"""The static KV cache of passes by torch operators, as on a GPU: one ring of positions per stream (slot).

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
from models.slots import MAX_ROWS, Slots, chain, check_counts, check_parents
from models.transformer_config import TransformerConfig

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


class KvCache(Slots):
    """Keys and values of ``slots`` streams."""

    def __init__(
        self, config: TransformerConfig, slots: int, dtype: torch.dtype, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(slots, config.window + MAX_ROWS)
        self.config = config
        shape = (config.layers, slots, self.capacity, 2, config.kv_heads, config.head_width)
        self.store = torch.zeros(shape, dtype=dtype, device=device)
        self._flat = [layer.flatten(0, 1) for layer in self.store]  # [slots capacity, 2, kv_heads, hw] each
        self._layers = [layer.permute(2, 0, 3, 1, 4) for layer in self.store]  # [2, slots, kv_heads, capacity, hw] each
        self._ring = np.arange(self.capacity)

    @property
    def nbytes(self) -> int:
        """Bytes of the preallocated store."""
        return self.store.nbytes

    @property
    def stores(self) -> tuple[Tensor]:
        """See ``Slots.stores``."""
        return (self.store,)

    def move(self, slot: int, to: int, source: int) -> None:
        """See ``Slots.move``."""
        self.store[:, slot, to] = self.store[:, slot, source]

    def layout(self, counts: Sequence[int], parents: Sequence[int] | None = None) -> PassLayout:
        """Layout of a pass; see ``Transformer.step``. Raises ValueError for counts and parents that one pass cannot take."""
        check_counts(counts)
        check_parents(counts, parents if parents is not None else chain(counts))
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
        positions = places = block[real]  # [N]
        if parents is not None:
            positions = self._open_tree(mask, places, counts[first:end], parents, groups)
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
            places=self._index(slots * self.capacity + places % self.capacity),
            slots=slice(first, end),
            spread=spread,
            gather=gather,
            rows=rows,
            mask=self._tensor(mask),
        )

    def _open_tree(
        self,
        mask: npt.NDArray[np.float32],
        places: npt.NDArray[np.int64],
        counts: Sequence[int],
        parents: Sequence[int],
        groups: int,
    ) -> npt.NDArray[np.int64]:
        """Let every row of ``mask`` see the committed window and its own path instead of all rows before it -> positions [N]."""
        positions = np.empty(len(places), np.int64)
        first = 0
        for b, count in enumerate(counts):
            start = int(places[first]) if count else 0
            paths: list[list[int]] = []
            for row, parent in enumerate(parents[first : first + count]):
                paths.append([*(paths[parent] if parent >= 0 else []), row])
                position = positions[first + row] = start + len(paths[row]) - 1
                committed = np.arange(max(0, position - self.config.window + 1), start)
                seen = np.concatenate([committed, start + np.array(paths[row])])[-self.config.window :]
                line = np.full(self.capacity, -np.inf, np.float32)
                line[seen % self.capacity] = 0
                mask[b, 0, row * groups : (row + 1) * groups] = line
            first += count
        return positions

    def write(self, layer: int, kv: Tensor, layout: PassLayout) -> tuple[Tensor, Tensor]:
        """Store ``kv`` [N, 2, kv_heads, hw] of the new positions -> the block's keys and values [B, kv_heads, capacity, hw]."""
        self._flat[layer].index_copy_(0, layout.places, kv)
        keys, values = self._layers[layer][:, layout.slots]
        return keys, values

    def _tensor(self, values: npt.NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(values).to(self.store.device, self.store.dtype)

    def _index(self, values: npt.NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(values).to(self.store.device)
