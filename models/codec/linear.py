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
    """[M, C] -> [at least ``least``, C], rows of zeros added."""
    missing = least - x.shape[0]
    return x if missing <= 0 else F.pad(x, (0, 0, 0, missing))


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
    return torch.backends.mkldnn.is_available()  # type: ignore[no-any-return]


class PackedMatrix:
    """``linear_rows`` with a weight [out, in] and bias [out] of this moment, packed; with ``half`` the weight is rounded to float16.

    It can be neither copied nor saved.
    """

    def __init__(self, weight: Tensor, bias: Tensor, half: bool) -> None:
        weight, self._bias = weight.detach(), bias.detach().clone()
        self._half = half
        if half:
            with warnings.catch_warnings():
                # Called deprecated, but its successor, quantized.linear_dynamic_fp16, costs several times as much a call.
                warnings.simplefilter("ignore", UserWarning)
                self._weight: Any = torch.fbgemm_pack_gemm_matrix_fp16(weight)
                self(weight[:1])
        else:
            # The operators torch.compile uses for frozen weights; torch has no public name for them.
            self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_ROWS)

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor
        if self._half:
            y = torch.fbgemm_linear_fp16_weight_fp32_activation(x, self._weight, self._bias)
            return y
        rows = x.shape[:-1].numel()
        filled = fill_rows(x.reshape(rows, -1), PACKED_ROWS)
        y = torch.ops.mkldnn._linear_pointwise(filled, self._weight, self._bias, "none", [], "")
        return y[:rows].view(*x.shape[:-1], -1)


class RowLinear(nn.Linear):
    """``nn.Linear``; see above for what it promises where gradients are off."""

    _packed: PackedMatrix | None = None

    def pack(self, half: bool) -> None:
        """Decode with the weights of this moment, packed; does nothing where that is not possible."""
        if can_pack(self.weight, half):
            self._packed = PackedMatrix(self.weight, self.bias, half)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        if torch.is_grad_enabled():
            return super().forward(x)
        if self._packed is None:
            return linear_rows(x, self.weight, self.bias)
        return self._packed(x)
