"""The loss for acceptance against draws and against its definition."""

from __future__ import annotations

import numpy as np
import torch

from models.training.acceptance import coupled_match


def distributions(rows: int, options: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(rows, options).mul(1.5).softmax(-1), torch.randn(rows, options).mul(1.5).softmax(-1)


def test_coupled_match_is_the_share_of_equal_choices_under_shared_noise() -> None:
    p, q = distributions(4, 12)
    noise = np.random.default_rng(2).gumbel(size=(200_000, 1, 12))
    equal = (p.log().numpy() + noise).argmax(-1) == (q.log().numpy() + noise).argmax(-1)
    np.testing.assert_allclose(coupled_match(p, q), equal.mean(0), atol=4e-3)


def test_it_is_by_its_definition_whatever_the_zeros_and_ties() -> None:
    p, q = distributions(6, 9)
    p[0, 3:] = 0
    q[1, 2] = 0
    q[2] = p[2]
    p[3], q[3] = torch.full((9,), 1 / 9), torch.full((9,), 1 / 9)
    p, q = p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)
    for one, other, got in zip(p.double(), q.double(), coupled_match(p, q), strict=True):
        both = (one > 0) & (other > 0)
        expected = sum(
            1 / torch.maximum(one / one[j], other / other[j]).sum() for j in torch.nonzero(both)[:, 0].tolist()
        )
        torch.testing.assert_close(got.double(), torch.as_tensor(expected), atol=1e-5, rtol=0)
    assert coupled_match(p, q)[2] > 1 - 1e-5


def test_going_up_its_gradient_makes_the_drafter_match() -> None:
    p, _ = distributions(3, 20)
    logits = torch.zeros(3, 20, requires_grad=True)
    optimizer = torch.optim.Adam([logits], 0.1)
    for _ in range(300):
        optimizer.zero_grad()
        (-coupled_match(p, logits.softmax(-1)).log().sum()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert coupled_match(p, logits.detach().softmax(-1)).min() > 0.98
