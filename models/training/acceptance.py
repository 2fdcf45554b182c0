"""The share of drafts that coupled mode accepts, as a function to train by. Knows distributions; knows no model."""

from __future__ import annotations

import torch
from torch import Tensor


def coupled_match(p: Tensor, q: Tensor) -> Tensor:
    """Probabilities p (target) and q (drafter), [..., options] -> [...].

    The chance that argmax(log p + g) equals argmax(log q + g) under the same Gumbel noise g: J = sum_j 1 / sum_i max(p_i/p_j, q_i/q_j).

    Source: Daliri et al. 2024 ("Coupling without communication"). Sorted by p / q the sum over i falls into two cumulative sums. Options
    that one of them never takes add nothing.
    """
    tiny = 1e-12
    order = (p.detach() + tiny).log().sub((q.detach() + tiny).log()).argsort(dim=-1)
    p, q = p.gather(-1, order), q.gather(-1, order)
    above = p.flip(-1).cumsum(-1).flip(-1)  # sum of p_i whose ratio is at least j's
    below = q.cumsum(-1) - q  # sum of q_i whose ratio is less
    terms = above / p.clamp(min=tiny) + below / q.clamp(min=tiny)
    return torch.where((p > tiny) & (q > tiny), 1 / terms, torch.zeros_like(terms)).sum(-1)
