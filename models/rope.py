"""Rotary position embedding (Su et al. 2021), half-split layout as in Llama. Knows positions and vectors only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
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


def position_angles(
    positions: npt.NDArray[np.int64], head_width: int, base: float
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """The same for ``x * cos + swapped * sin`` with the halves of ``x`` swapped: (cos, sin) [..., head_width], sin's first half negated.

    By NumPy: a decoding pass has a few positions, and a dozen small tensor operators would cost more than the angles.
    """
    half = head_width // 2
    angles = positions[..., None] * base ** (-np.arange(half) / half)
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    return np.concatenate([cos, cos], axis=-1), np.concatenate([-sin, sin], axis=-1)
