"""The static KV cache: one ring of positions per row, rollback by setting a length.

The ring is ``window + MAX_ROWS`` long: a pass may write up to MAX_ROWS new positions and every one still sees its whole window.
Whatever a rejected draft left behind lies beyond the length or outside every window, and is written over before it can be seen.
A pass always reads the whole ring, empty slots masked, so that sums run in the same order however many rows it has.
Knows no tokens and no layers' insides.
"""

from __future__ import annotations

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
    """Where one pass of R new positions reads and writes; the same for every layer."""

    cos: Tensor  # [B, R, 1, head_width]
    sin: Tensor  # the same, its first half negated: what a vector's swapped halves are multiplied with
    slots: npt.NDArray[np.int64]  # [B, R] ring slots to write
    mask: Tensor  # [B, 1, Q, capacity] 0 where visible, -inf elsewhere; Q = R x heads per kv head, padded


class KvCache:
    """Keys and values of ``batch`` rows. ``lengths[b]`` positions of row b are committed; ``rewind`` rolls back."""

    def __init__(
        self, config: TransformerConfig, batch: int, dtype: torch.dtype, device: torch.device | str = "cpu"
    ) -> None:
        self.config = config
        self.capacity = config.window + MAX_ROWS
        shape = (config.layers, 2, batch, config.kv_heads, self.capacity, config.head_width)
        self.store = torch.zeros(shape, dtype=dtype, device=device)
        self._layers = list(self.store)
        self._keys_values = [(layer[0], layer[1]) for layer in self.store]
        self._slots = np.arange(self.capacity)
        self.lengths = [0] * batch
        self._written = [0] * batch  # positions below which anything was ever written, since position 0

    @property
    def nbytes(self) -> int:
        """Bytes of the preallocated store."""
        return self.store.nbytes

    def rewind(self, row: int, length: int) -> None:
        """Set the length of ``row``, at most to what it is.

        Raises ValueError when ``length`` lies beyond what is held, or so far back that the ring has written over what must be seen.
        """
        if not 0 <= length <= self.lengths[row]:
            raise ValueError(f"length is {length}; only {self.lengths[row]} positions are cached")
        written = self._written[row] if length else 0
        if written > self.capacity and written - length > MAX_ROWS:
            raise ValueError(f"length is {length}; {written} positions were written, at most {MAX_ROWS} can be undone")
        self.lengths[row], self._written[row] = length, written

    def layout(self, rows: int) -> PassLayout:
        """Layout of the next pass of ``rows`` new positions in every row."""
        if not 1 <= rows <= MAX_ROWS:
            raise ValueError(f"rows is {rows}; allowed: 1 to {MAX_ROWS}")
        config = self.config
        positions = np.array(self.lengths)[:, None] + np.arange(rows)  # [B, R]
        # How far back the position a slot holds lies; slots of later positions, also of rejected ones, come out beyond the window.
        distance = (positions[:, :, None] - self._slots) % self.capacity  # [B, R, capacity]
        visible = distance < np.minimum(positions + 1, config.window)[:, :, None]
        groups = config.heads // config.kv_heads
        queries = -(-rows * groups // QUERY_MULTIPLE) * QUERY_MULTIPLE
        mask = np.zeros((len(positions), 1, queries, self.capacity), np.float32)  # padding sees everything: never empty
        mask[:, 0, : rows * groups] = np.where(visible, np.float32(0), np.float32("-inf")).repeat(groups, axis=1)
        cos, sin = position_angles(positions, config.head_width, config.rope_base)
        return PassLayout(
            self._tensor(cos[:, :, None]),
            self._tensor(sin[:, :, None]),
            positions % self.capacity,
            self._tensor(mask),
        )

    def write(self, layer: int, kv: Tensor, layout: PassLayout) -> tuple[Tensor, Tensor]:
        """Store ``kv`` [2, B, kv_heads, R, hw] of the new positions -> all keys and values [B, kv_heads, capacity, hw]."""
        store = self._layers[layer]
        first, rows = int(layout.slots[0, 0]), kv.shape[3]
        if len(layout.slots) == 1 and first + rows <= self.capacity:
            store.narrow(3, first, rows).copy_(kv)
        else:
            slots = torch.from_numpy(layout.slots).to(store.device)
            store.scatter_(3, slots[None, :, None, :, None].expand(kv.shape), kv)
        return self._keys_values[layer]

    def advance(self, rows: int) -> None:
        """Count ``rows`` new positions of every row as written."""
        self.lengths = [length + rows for length in self.lengths]
        self._written = [max(written, length) for written, length in zip(self._written, self.lengths, strict=True)]

    def _tensor(self, values: npt.NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(values).to(self.store.device, self.store.dtype)
