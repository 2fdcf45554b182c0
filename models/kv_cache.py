"""The static KV cache: one ring of positions per row, rollback by setting a length.

The ring is ``window + MAX_ROWS`` long: a pass may write up to MAX_ROWS new positions and every one still sees its whole window.
Whatever a rejected draft left behind lies beyond the length or outside every window, and is written over before it can be seen.
Knows no tokens and no layers' insides.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from models.rope import rope_table
from models.transformer_config import TransformerConfig

MAX_ROWS = 16  # new positions in one pass


@dataclass(frozen=True, slots=True)
class PassLayout:
    """Where one pass of R new positions reads and writes; the same for every layer."""

    cos: Tensor  # [B, 1, R, head_width]
    sin: Tensor
    slots: Tensor  # [B, R] ring slots to write
    bias: Tensor  # [B, 1, 1, R, S] 0 where visible, -inf elsewhere
    span: int  # S: slots that may hold something


class KvCache:
    """Keys and values of ``batch`` rows. ``lengths[b]`` positions of row b are committed; set it to roll back."""

    def __init__(
        self, config: TransformerConfig, batch: int, dtype: torch.dtype, device: torch.device | str = "cpu"
    ) -> None:
        self.config = config
        self.capacity = config.window + MAX_ROWS
        shape = (config.layers, 2, batch, config.kv_heads, self.capacity, config.head_width)
        self.store = torch.zeros(shape, dtype=dtype, device=device)
        self.lengths = [0] * batch

    @property
    def nbytes(self) -> int:
        """Bytes of the preallocated store."""
        return self.store.nbytes

    def layout(self, rows: int) -> PassLayout:
        """Layout of the next pass of ``rows`` new positions in every row."""
        if not 1 <= rows <= MAX_ROWS:
            raise ValueError(f"rows is {rows}; allowed: 1 to {MAX_ROWS}")
        device = self.store.device
        start = torch.tensor(self.lengths, device=device)[:, None]  # [B, 1]
        positions = start + torch.arange(rows, device=device)  # [B, R]
        last = start + rows - 1
        span = min(self.capacity, max(self.lengths) + rows)
        slots = torch.arange(span, device=device)
        held = last - (last - slots) % self.capacity  # [B, S] position each slot holds; negative = none
        distance = positions[:, :, None] - held[:, None, :]  # [B, R, S]
        visible = (distance >= 0) & (distance < self.config.window) & (held >= 0)[:, None, :]
        bias = torch.zeros(visible.shape, device=device).masked_fill_(~visible, float("-inf"))
        cos, sin = self._rotation(positions)
        return PassLayout(cos, sin, positions % self.capacity, bias[:, None, None], span)

    def write(self, layer: int, k: Tensor, v: Tensor, layout: PassLayout) -> tuple[Tensor, Tensor]:
        """Store k, v [B, kv_heads, R, hw] of the new positions -> all keys and values [B, kv_heads, S, hw]."""
        store = self.store[layer]
        if layout.slots.shape[0] == 1:
            first, rows = int(layout.slots[0, 0]), k.shape[2]
            if first + rows <= self.capacity:
                store[0, :, :, first : first + rows] = k
                store[1, :, :, first : first + rows] = v
                return store[0, :, :, : layout.span], store[1, :, :, : layout.span]
        index = layout.slots[:, None, :, None].expand(-1, k.shape[1], -1, k.shape[3])
        store[0].scatter_(2, index, k.to(store.dtype))
        store[1].scatter_(2, index, v.to(store.dtype))
        return store[0, :, :, : layout.span], store[1, :, :, : layout.span]

    def advance(self, rows: int) -> None:
        """Count ``rows`` new positions of every row as written."""
        self.lengths = [length + rows for length in self.lengths]

    def _rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = rope_table(positions, self.config.head_width, self.config.rope_base)
        dtype = self.store.dtype
        return cos[:, None].to(dtype), sin[:, None].to(dtype)
