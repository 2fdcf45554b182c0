"""ConvNeXt blocks over time, causal with an explicit state or symmetric, in the layout [B, T, C].

Knows nothing of audio or tokens. Source: Liu et al. 2022 (ConvNeXt), used for vocoders by Vocos (Siuzdak 2023).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.codec.linear import RowLinear, linear_rows


def check_sizes(config: object, names: Iterable[str]) -> None:
    """Raise ValueError unless every named field of ``config`` is a whole number from 1."""
    for name in names:
        value = getattr(config, name)
        if type(value) is not int or value < 1:
            raise ValueError(f"{name} is {value!r}; allowed: a whole number from 1")


class TimeConv(nn.Module):
    """1-D convolution over time in [B, T, C]; causal ones take and return the last ``kernel - 1`` inputs.

    ``groups`` is 1 or, for a depthwise convolution, ``inputs``. Without gradients a causal one's step does not depend, to the bit, on
    how many steps come with it.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, *, causal: bool, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, groups=groups)
        self.kernel = kernel
        self.causal = causal

    def forward(self, x: Tensor, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """``x`` [B, T, C], ``past`` [B, kernel - 1, C] or None for silence before -> (y [B, T, C'], new past)."""
        if self.causal:
            if past is None:
                past = x.new_zeros(x.shape[0], self.kernel - 1, x.shape[2])
            padded = torch.cat([past, x], dim=1)  # [B, kernel - 1 + T, C]
            new_past = padded[:, padded.shape[1] - (self.kernel - 1) :]
        else:
            padded = F.pad(x, (0, 0, self.kernel // 2, self.kernel // 2))
            new_past = padded[:, :0]
        if self.causal and not torch.is_grad_enabled():
            return self._streamed(padded), new_past
        return self.conv(padded.transpose(1, 2)).transpose(1, 2), new_past

    def _streamed(self, padded: Tensor) -> Tensor:
        """The same convolution as a sum over windows: for a few steps setting up the library's call costs more than the arithmetic."""
        windows = padded.unfold(1, self.kernel, 1)  # [B, T, C, kernel]
        weight, bias = self.conv.weight, self.conv.bias
        assert bias is not None
        if self.conv.groups == 1:
            return linear_rows(windows.flatten(2), weight.flatten(1), bias)
        return (windows * weight[:, 0]).sum(-1) + bias


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution over time, LayerNorm, two-layer MLP, layer scale, residual."""

    def __init__(self, width: int, *, causal: bool, kernel: int = 7, expansion: int = 3, scale: float = 0.1) -> None:
        super().__init__()
        self.depthwise = TimeConv(width, width, kernel, causal=causal, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up = RowLinear(width, expansion * width)
        self.down = RowLinear(expansion * width, width)
        self.scale = nn.Parameter(torch.full((width,), scale))

    def forward(self, x: Tensor, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """[B, T, C] -> ([B, T, C], new past [B, kernel - 1, C])."""
        y, new_past = self.depthwise(x, past)
        y = self.down(F.gelu(self.up(self.norm(y))))
        return x + self.scale * y, new_past
