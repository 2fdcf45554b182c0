"""A linear layer without bias whose weight can be packed once for decoding.

Decoding multiplies one to sixteen rows, many times a second. Packed (oneDNN's blocked layout) that takes about half the time of a plain
product, and a row's result does not depend on the rows beside it, which is what makes a pass of 8 rows equal 8 passes of one, bit by
bit. Training uses the plain weight. Knows matrices only.
"""

from __future__ import annotations

import platform
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PACK_ROWS = 16  # the layout is chosen for this many rows; with fewer, float32 products lose row independence


def can_pack(weight: Tensor) -> bool:
    """Whether ``weight`` has a packed form here: x86, float32 or bfloat16, on the CPU."""
    if weight.device.type != "cpu" or platform.machine() not in ("x86_64", "AMD64"):
        return False
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    # The operators torch.compile itself uses for frozen weights; torch offers no public name for them.
    return weight.dtype == torch.float32 or (
        weight.dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


class Linear(nn.Linear):
    """``nn.Linear`` without bias; ``step`` uses the packed weight once ``pack`` was called."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)
        self._packed: Tensor | None = None
        self._packed_from: tuple[object, ...] = ()

    def pack(self) -> None:
        """Pack the weight as it is now; does nothing when it has not changed since."""
        weight = self.weight
        version = 0 if weight.is_inference() else weight._version
        source = (weight.data_ptr(), weight.dtype, weight.device, version)
        if source != self._packed_from:
            with torch.inference_mode():
                self._packed = (
                    torch.ops.mkldnn._reorder_linear_weight(weight.detach(), PACK_ROWS) if can_pack(weight) else None
                )
            self._packed_from = source

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {
            "_packed": None,
            "_packed_from": (),
        }  # a packed weight can be neither copied nor pickled

    def step(self, x: Tensor) -> Tensor:
        """``x`` [N, in_features] -> [N, out_features], without gradient."""
        if self._packed is None:
            return F.linear(x, self.weight)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, None, "none", [], "")
        return y
