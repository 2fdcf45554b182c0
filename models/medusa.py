"""Heads that guess the next decisions from one hidden state of the target (Medusa, Cai et al. 2024).

Offset j behind the state h of a position is a residual block, h + SiLU(W_j h), and then the target's own head of the codebook due there.
The heads do not see what was decided since. Knows states; knows no tokens, no sampling and no script.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.packed import PackedHeads, PackedMatrix
from models.products import Floats
from models.speech_lm import SpeechLm


@dataclass(frozen=True, slots=True)
class MedusaConfig:
    """Sizes of the heads."""

    width: int  # of the target
    offsets: int = 6  # decisions guessed

    def __post_init__(self) -> None:
        for name in ("width", "offsets"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)!r}; allowed: a whole number from 1")


class MedusaHeads(nn.Module):
    """See the module. Untrained they guess what the target decided at the state's own position."""

    def __init__(self, config: MedusaConfig) -> None:
        super().__init__()
        self.config = config
        self.blocks = nn.ModuleList(nn.Linear(config.width, config.width, bias=False) for _ in range(config.offsets))
        for weight in self.matrices:
            nn.init.zeros_(weight)

    @property
    def matrices(self) -> list[nn.Parameter]:
        """[width, width] each."""
        return [block.get_parameter("weight") for block in self.blocks]

    def forward(self, hidden: Tensor, offset: int) -> Tensor:
        """Hidden states [..., width] of the target -> those guessed ``offset`` (1 and more) positions later."""
        guessed: Tensor = hidden + F.silu(self.blocks[offset - 1](hidden))
        return guessed


class PackedMedusa:
    """Weights of ``MedusaHeads`` and of the target's heads for drafting, which is done on the CPU wherever the target is."""

    def __init__(self, medusa: MedusaHeads, target: SpeechLm) -> None:
        self._blocks = PackedMatrix(torch.cat([weight.detach().cpu() for weight in medusa.matrices]))
        self._heads = target.packed_heads()

    def guesses(self, hidden: Floats) -> MedusaGuesses:
        """Of the positions after the one with the hidden state ``hidden`` [width]."""
        x = self._blocks(hidden[None]).reshape(-1, len(hidden))
        return MedusaGuesses(
            hidden + 0.5 * x * (1 + np.tanh(0.5 * x)), self._heads
        )  # that is SiLU, and never overflows


class MedusaGuesses:
    """Logits of the positions after one of the target's, made when asked for."""

    def __init__(self, states: Floats, heads: PackedHeads) -> None:
        self._states = states  # [offsets, width]
        self._heads = heads
        self._made: dict[tuple[int, int], Floats] = {}

    def __len__(self) -> int:
        return len(self._states)

    def logits(self, offset: int, due: int) -> Floats:
        """[codebook_size + 2] of codebook ``due``, ``offset`` positions later, 1 to ``len``."""
        if (offset, due) not in self._made:
            self._made[offset, due] = self._heads(self._states[offset - 1 : offset], np.array([due]))[0]
        return self._made[offset, due]
