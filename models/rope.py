"""Rotary position embedding (Su et al. 2021), half-split layout as in Llama. Knows positions and vectors only."""

from __future__ import annotations

import torch
from torch import Tensor


def rope_table(positions: Tensor, head_width: int, base: float) -> tuple[Tensor, Tensor]:
    """(cos, sin) [..., head_width] float32 for integer ``positions`` [...]; angles in float64, since streams are long."""
    half = head_width // 2
    rates = base ** (-torch.arange(half, dtype=torch.float64, device=positions.device) / half)
    angles = positions.double()[..., None] * rates
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos().float(), angles.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of ``x`` [B, H, T, head_width]; ``cos``, ``sin`` broadcast over H."""
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos + turned * sin
