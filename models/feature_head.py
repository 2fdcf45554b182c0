"""The network of the ``feature`` drafter: from the target's hidden states at one position to the decisions of the next few.

A small recurrent network starts from what the target computed at the last committed position and takes in the drafted tokens one after
another; no attention, no cache (class of Hydra, Ankner et al. 2024, and ReDrafter, Cheng et al. 2024, fed with the states of several layers
as EAGLE-3, Li et al. 2025). A step costs some hundredth of a pass of the target. Knows vectors; knows no script and no sampling.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPS = 1e-5  # of the norms


@dataclass(frozen=True, slots=True)
class FeatureConfig:
    """Sizes. ``taps``: after so many layers of the target its residual is read, beside its last hidden state."""

    width: int  # of the target and of the state
    taps: tuple[int, ...]
    hidden: int = 768  # of the step's SwiGLU
    codebooks: int = 4
    codebook_size: int = 1024

    def __post_init__(self) -> None:
        for name in ("width", "hidden", "codebooks", "codebook_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; allowed: a whole number from 1")
        object.__setattr__(self, "taps", tuple(self.taps))
        if any(not isinstance(tap, int) or tap < 1 for tap in self.taps):
            raise ValueError(f"taps is {self.taps!r}; allowed: numbers of layers from 1")


class FeatureHead(nn.Module):
    """See the module. ``begin`` once a round, ``advance`` and a head once a drafted decision."""

    def __init__(self, config: FeatureConfig) -> None:
        super().__init__()
        self.config = config
        width, sources = config.width, len(config.taps) + 1
        self.source_norms = nn.ModuleList(nn.RMSNorm(width, EPS) for _ in range(sources))
        self.join = nn.Linear(sources * width, width, bias=False)
        self.state_norm = nn.RMSNorm(width, EPS)
        self.input_norm = nn.RMSNorm(width, EPS)
        self.gate_up = nn.Linear(2 * width, 2 * config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, width, bias=False)
        self.norm = nn.RMSNorm(width, EPS)
        self.heads = nn.ModuleList(
            nn.Linear(width, config.codebook_size + (2 if book == 0 else 0), bias=False)
            for book in range(config.codebooks)
        )
        for linear in (self.join, self.gate_up, self.down, *self.heads):
            nn.init.normal_(linear.weight, std=0.02)

    def begin(self, sources: Tensor) -> Tensor:
        """``sources`` [..., taps + 1, width]: the target's residual at the taps and its last hidden state -> state [..., width]."""
        normed = [norm(sources[..., i, :]) for i, norm in enumerate(self.source_norms)]
        state: Tensor = self.join(torch.cat(normed, dim=-1))
        return state

    def advance(self, state: Tensor, x: Tensor) -> Tensor:
        """State and the next input vector (the target's own), [..., width] each -> the state that decides what follows that input."""
        both = torch.cat([self.state_norm(state), self.input_norm(x)], dim=-1)
        gate, up = self.gate_up(both).chunk(2, dim=-1)
        moved: Tensor = state + self.down(F.silu(gate) * up)
        return moved
