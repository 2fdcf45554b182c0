"""An exit from the first layers of the target, by which it drafts for itself (LayerSkip, Elhoushi et al. 2024; Kangaroo, Liu et al. 2024).

The residual after those layers goes through one SwiGLU block and a norm, and then through the target's own heads. Knows residuals; knows
no tokens and no cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn
from torch.nn import functional as F

from models.kernels import add_and_norm, norm, swiglu
from models.packed import PackedMatrix
from models.products import Floats
from models.speech_lm import SpeechLm

EPS = 1e-5


@dataclass(frozen=True, slots=True)
class ExitConfig:
    """Where it leaves the target, and its size."""

    width: int  # of the target
    layers: int = 2  # of the target, run before it
    hidden: int = 512  # of the block

    def __post_init__(self) -> None:
        for name in ("width", "layers", "hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)!r}; allowed: a whole number from 1")


class ExitHead(nn.Module):
    """See the module. Untrained its block adds nothing."""

    def __init__(self, config: ExitConfig) -> None:
        super().__init__()
        self.config = config
        self.block_norm = nn.RMSNorm(config.width, EPS)
        self.gate_up = nn.Linear(config.width, 2 * config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)
        self.norm = nn.RMSNorm(config.width, EPS)
        nn.init.normal_(self.gate_up.weight, std=0.02)
        nn.init.zeros_(self.down.weight)

    @property
    def matrices(self) -> list[nn.Parameter]:
        """Those of the block."""
        return [linear.get_parameter("weight") for linear in (self.gate_up, self.down)]

    def forward(self, residual: Tensor) -> Tensor:
        """Residuals [..., width] after the first layers -> guesses of the hidden states."""
        gate, up = self.gate_up(self.block_norm(residual)).chunk(2, dim=-1)
        guessed: Tensor = self.norm(residual + self.down(F.silu(gate) * up))
        return guessed


class PackedExit:
    """Weights of an ``ExitHead`` and of the target's heads for drafting, which is done on the CPU wherever the target is."""

    def __init__(self, head: ExitHead, target: SpeechLm) -> None:
        self.layers = head.config.layers
        scales = [each.get_parameter("weight").detach().float().cpu().numpy() for each in (head.block_norm, head.norm)]
        self._block_scale: Floats = scales[0]
        self._scale: Floats = scales[1]
        self._gate_up, self._down = (PackedMatrix(weight.detach().cpu()) for weight in head.matrices)
        self._heads = target.packed_heads()

    def logits(self, residual: Floats, due: npt.NDArray[np.int64]) -> Floats:
        """Residuals [N, width] after ``layers`` layers, the codebook ``due`` [N] -> [N, codebook_size + 2]. Overwrites ``residual``."""
        made = np.empty(residual.shape, np.float32)
        norm(residual, self._block_scale, np.float32(EPS), made)
        gated = np.empty((len(residual), self._down.columns), np.float32)
        swiglu(self._gate_up(made), gated)
        add_and_norm(residual, self._down(gated), self._scale, np.float32(EPS), made)
        return self._heads(made, due)
