"""A linear layer for decoding only, its weights in the order in which the processor's matrix kernels read them.

A plain layer's weights are put in that order anew at every call, which for a few rows costs more than the product itself. Each row's
result is also the same however many rows there are, which a plain float32 layer does not promise. Knows nothing of audio.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.linear import can_pack

ROWS = 2  # fewest rows of a call: one row alone takes another kernel, with another order of sums


class PackedLinear(nn.Module):
    """``nn.Linear`` with the weights of ``linear`` at this moment in ``dtype``; has no parameters and stays on its device.

    Input of any floating type, [..., in]; output [..., out] in ``dtype``. Where weights cannot be packed it is a plain product.
    """

    def __init__(self, linear: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.bias = linear.bias.detach().to(dtype)
        self.weight = linear.weight.detach().to(dtype)
        self.packed = can_pack(self.weight)
        if self.packed:
            self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight, ROWS)

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.dtype)
        if not self.packed:
            return F.linear(x, self.weight, self.bias)
        rows = x.reshape(-1, x.shape[-1])
        if rows.shape[0] < ROWS:
            rows = rows.repeat(ROWS, 1)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self.weight, self.bias, "none", [], "")
        return y[: x.shape[:-1].numel()].view(*x.shape[:-1], -1)
