"""Layers that decode from packed weights: a linear layer and RMSNorm, each with ``pack`` and a fast ``step`` beside the usual ``forward``.

Decoding multiplies one to sixteen rows, hundreds of times a second, so the packed forms are chosen for two things: little time for few
rows, and a result of each row that does not depend on the rows beside it. The latter makes a pass of 8 rows equal 8 passes of one, bit by
bit. ``step`` computes in ``step_dtype``; training never comes here. Knows matrices only.
"""

from __future__ import annotations

import platform
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

FLOAT32_PACK_ROWS = 16  # oneDNN chooses the layout for this many rows; with one for fewer, rows depend on each other


def can_pack(weight: Tensor) -> bool:
    """Whether oneDNN can pack ``weight``: x86, on the CPU, float32, or bfloat16 where the processor multiplies it."""
    if weight.device.type != "cpu" or platform.machine() not in ("x86_64", "AMD64"):
        return False
    if not torch.backends.mkldnn.is_available():
        return False
    return weight.dtype == torch.float32 or (
        weight.dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


def can_halve(weight: Tensor) -> bool:
    """Whether fbgemm can keep ``weight`` in 16 bits and multiply it in float32: x86, on the CPU, bfloat16."""
    return (
        weight.dtype == torch.bfloat16
        and weight.device.type == "cpu"
        and "fbgemm" in torch.backends.quantized.supported_engines
    )


def step_dtype(weight: Tensor) -> torch.dtype:
    """What ``step`` of a layer with ``weight`` computes in."""
    return torch.float32 if can_halve(weight) else weight.dtype


class Packed(nn.Module):
    """A layer whose packed form is made once from its weight. A packed form can be neither copied nor pickled, and need not be."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._packed: Any = None
        self._packed_from: tuple[object, ...] = ()

    def pack(self) -> None:
        """Pack the weight as it is now; does nothing when it has not changed since."""
        weight = self.get_parameter("weight")
        version = 0 if weight.is_inference() else weight._version
        source = (weight.data_ptr(), weight.dtype, weight.device, version)
        if source != self._packed_from:
            with torch.inference_mode():
                self._packed = self._pack(weight.detach())
            self._packed_from = source

    def _pack(self, weight: Tensor) -> Any:
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_packed": None, "_packed_from": ()}


class Linear(Packed, nn.Linear):
    """``nn.Linear``, as a rule without bias."""

    def __init__(self, in_features: int, out_features: int, *, bias: bool = False) -> None:
        super().__init__(in_features, out_features, bias=bias)

    def _pack(self, weight: Tensor) -> Any:
        if can_halve(weight):
            with warnings.catch_warnings():
                # Both functions warn, once, that they will be removed. The successor, quantized.linear_dynamic_fp16, is the same
                # kernel with five times the cost of a call. float16 holds a bfloat16 exactly from 6e-5 up.
                warnings.simplefilter("ignore", UserWarning)
                bias = torch.zeros(self.out_features) if self.bias is None else self.bias.detach().float()
                packed = torch.fbgemm_pack_gemm_matrix_fp16(weight.float()), bias
                torch.fbgemm_linear_fp16_weight_fp32_activation(torch.zeros(1, self.in_features), *packed)
            return packed
        if weight.dtype == torch.float32 and can_pack(weight):
            # The operators torch.compile uses for frozen weights; torch has no public name for them.
            return torch.ops.mkldnn._reorder_linear_weight(weight, FLOAT32_PACK_ROWS)
        return None

    def step(self, x: Tensor) -> Tensor:
        """``x`` [N, in_features] -> [N, out_features], without gradient."""
        packed = self._packed
        if packed is None:
            return F.linear(x, self.weight, self.bias)
        y: Tensor
        if isinstance(packed, tuple):
            y = torch.fbgemm_linear_fp16_weight_fp32_activation(x, *packed)
        else:
            y = torch.ops.mkldnn._linear_pointwise(x, packed, self.bias, "none", [], "")
        return y


class RmsNorm(Packed, nn.RMSNorm):
    """``nn.RMSNorm`` over the last axis (Zhang and Sennrich 2019)."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__(width, eps=eps)
        self._floor = (width * eps) ** 0.5

    def _pack(self, weight: Tensor) -> Any:
        scale = (weight.float() * len(weight) ** 0.5).to(step_dtype(weight))
        plain = weight.float().cpu().numpy().copy()
        return scale, torch.tensor(self._floor, dtype=scale.dtype, device=scale.device), plain

    @property
    def scale(self) -> npt.NDArray[np.float32]:
        """The packed weight, [width], for the compiled kernels."""
        plain: npt.NDArray[np.float32] = self._packed[2]
        return plain

    def step(self, x: Tensor) -> Tensor:
        """``x`` [..., width] -> the same, in half the operators of ``forward``: x / sqrt(|x|^2 + width eps), scaled."""
        scale, floor, _ = self._packed
        y: Tensor = x / torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), floor) * scale
        return y
