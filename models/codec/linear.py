"""A linear layer whose rows, in decoding, do not depend on how many rows come with them, and which can be packed.

The phase of the harmonic source is the sum of all F0 so far, so a last bit that changes with the size of a chunk would be heard by a
comparison soon: decoding frame by frame must give the rows that decoding at once gives. Matrix libraries take other kernels, with another
order of sums, for a few rows. Packed weights lie in the order in which the kernel reads them, which for a few rows is also faster.
Knows nothing of audio.
"""

from __future__ import annotations

import platform
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ROWS = 4  # fewest rows of a plain product (MKL)
PACKED_ROWS = 2  # and of one with packed float32 weights (oneDNN)


def fill_rows(x: Tensor, least: int) -> Tensor:
    """[M, C] -> [at least ``least``, C], rows repeated."""
    return x if x.shape[0] >= least else x.repeat(-(-least // x.shape[0]), 1)


def linear_rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``F.linear`` of [..., in], without gradients, rows independent."""
    rows = x.shape[:-1].numel()
    y = F.linear(fill_rows(x.reshape(rows, -1), ROWS), weight, bias)
    return y[:rows].view(*x.shape[:-1], -1)


def can_pack(weight: Tensor, half: bool) -> bool:
    """Whether this machine has the kernels."""
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or platform.machine() not in ("x86_64", "AMD64"):
        return False
    if half:
        name = "fbgemm_linear_fp16_weight_fp32_activation"
        return hasattr(torch, name) and "fbgemm" in torch.backends.quantized.supported_engines
    return torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call, no-any-return]


class RowLinear(nn.Linear):
    """``nn.Linear``; see above for what it promises where gradients are off."""

    _packed: Any = None
    _half = False

    def pack(self, half: bool) -> None:
        """Decode with the weights of this moment, packed; with ``half`` rounded to float16. Does nothing where it is not possible.

        A packed layer can be saved but not copied.
        """
        weight = self.weight.detach()
        if not can_pack(weight, half):
            return
        self._half = half
        if half:
            with warnings.catch_warnings():
                # Called deprecated, but its successor, quantized.linear_dynamic_fp16, costs several times as much a call.
                warnings.simplefilter("ignore", UserWarning)
                self._packed = torch.fbgemm_pack_gemm_matrix_fp16(weight)
                torch.fbgemm_linear_fp16_weight_fp32_activation(weight[:1], self._packed, self.bias.detach())
        else:
            # The operators torch.compile uses for frozen weights; torch has no public name for them.
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_ROWS)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        if torch.is_grad_enabled():
            return super().forward(x)
        if self._packed is None:
            return linear_rows(x, self.weight, self.bias)
        y: Tensor
        if self._half:
            y = torch.fbgemm_linear_fp16_weight_fp32_activation(x, self._packed, self.bias)
            return y
        rows = x.shape[:-1].numel()
        filled = fill_rows(x.reshape(rows, -1), PACKED_ROWS)
        y = torch.ops.mkldnn._linear_pointwise(filled, self._packed, self.bias, "none", [], "")
        return y[:rows].view(*x.shape[:-1], -1)
