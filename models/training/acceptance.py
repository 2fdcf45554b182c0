"""How far a drafter's distribution is from the target's, as losses: what share of drafts is accepted.

p and q are probabilities after temperature, last axis the options. Knows distributions; knows no model.
"""

from __future__ import annotations

import torch
from torch import Tensor


def overlap(p: Tensor, q: Tensor) -> Tensor:
    """Chance that a draft is accepted in ratio mode, 1 - total variation (Leviathan et al. 2023): [...]."""
    return torch.minimum(p, q).sum(-1)


def coupled_match(p: Tensor, q: Tensor) -> Tensor:
    """Chance that argmax(log p + g) equals argmax(log q + g) under the same Gumbel noise g: J = sum_j 1 / sum_i max(p_i/p_j, q_i/q_j).

    Source: Daliri et al. 2024 ("Coupling without communication"). Sorted by p / q the sum over i falls into two cumulative sums. Options
    with neither p nor q are left out. [...]
    """
    tiny = 1e-12
    order = (p.detach() + tiny).log().sub((q.detach() + tiny).log()).argsort(dim=-1)
    p, q = p.gather(-1, order), q.gather(-1, order)
    above = p.flip(-1).cumsum(-1).flip(-1)  # sum of p_i whose ratio is at least j's
    below = q.cumsum(-1) - q  # sum of q_i whose ratio is less
    terms = above / p.clamp(min=tiny) + below / q.clamp(min=tiny)
    return torch.where((p > tiny) & (q > tiny), 1 / terms, torch.zeros_like(terms)).sum(-1)
