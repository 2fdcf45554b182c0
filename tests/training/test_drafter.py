"""Distillation of several kinds of drafter on one pass of the target: what each is compared with, and that it learns to match."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.exit_head import ExitConfig, ExitHead
from models.medusa import MedusaConfig, MedusaHeads
from models.speech_lm import SpeechLm, SpeechLmConfig
from models.training import drafter as module
from models.training.acceptance import coupled_match
from models.training.drafter import KINDS, Drafter, distillation_loss, load_drafters, matrices, new_drafter
from models.training.fit import optimizers
from models.training.lm_loss import book_logits, hidden_states, input_vectors
from models.training.woven import Rows
from tests.models.test_lm_stream import woven
from tests.speculate.streams import random_text, small_lm

TEMPERATURE = 0.7


def random_rows(seed: int, length: int = 60) -> Rows:
    """One row of random inputs; a boundary may be left after one frame."""
    rng = random.Random(seed)
    text = random_text(rng, 12)
    inputs = woven(rng, len(text.windows))[:length]

    def row(values: list[int]) -> Tensor:
        return torch.tensor([values])

    return Rows(
        tokens=row([max(item.token, 0) for item in inputs]),
        is_phoneme=row([item.token < 0 for item in inputs]),
        counts=row([item.frames for item in inputs]),
        phonemes=row([item.phoneme for item in inputs]),
        due=row([item.due for item in inputs]),
        decisions=row([0] * len(inputs)),
        leavable=row([int(item.due == 0 and item.frames > 0) for item in inputs]),
        windows=torch.tensor(text.windows),
        voices=torch.tensor([0]),
        speeds=torch.ones(1, len(inputs)),
    )


def small_drafters() -> dict[str, Drafter]:
    torch.manual_seed(1)
    head = ExitHead(ExitConfig(64, layers=1, hidden=64))
    medusa = MedusaHeads(MedusaConfig(64, offsets=3))
    return {"early-exit": head, "medusa": medusa}


def match_at(target: SpeechLm, rows: Rows, normed: Tensor, guessed: Tensor, at: int) -> float:
    """Chance of a match at position ``at`` where the drafter's hidden state there is ``guessed`` [width]."""
    hidden = normed.clone()
    hidden[0, at] = guessed
    book = int(rows.due[0, at])
    index = int((rows.due[0, :at] == book).sum())
    p, q = ((book_logits(target, each, rows, book)[0][index] / TEMPERATURE).softmax(-1) for each in (normed, hidden))
    return float(coupled_match(p, q))


@torch.no_grad()
def test_every_position_is_compared_with_what_the_target_says_there() -> None:
    """Offset j of medusa at position t with what it says at t + j; nothing before the first state."""
    target, rows, drafters = small_lm(), random_rows(2), small_drafters()
    medusa, head = drafters["medusa"], drafters["early-exit"]
    assert isinstance(medusa, MedusaHeads)
    assert isinstance(head, ExitHead)
    for weight in (*medusa.matrices, *head.matrices):
        torch.nn.init.normal_(weight, std=0.1)
    normed, (residual,) = target.transformer.states(input_vectors(target, rows), (1,))
    _, parts = distillation_loss(drafters, target, rows, TEMPERATURE, torch.Generator())
    length = rows.due.shape[1]
    for offset in (1, 2, 3):
        zero = torch.zeros(64)
        expected = [
            match_at(target, rows, normed, medusa(normed[0, at - offset], offset) if at >= offset else zero, at)
            for at in range(length)
        ]
        assert float(parts[f"medusa+{offset}"]) == pytest.approx(sum(expected) / length, abs=2e-3)
    for book in range(4):
        places = [at for at in range(length) if rows.due[0, at] == book]
        expected = [match_at(target, rows, normed, head(residual[0, at]), at) for at in places]
        assert float(parts[f"early-exit.{book}"]) == pytest.approx(sum(expected) / len(places), abs=2e-3)


@pytest.mark.parametrize(("by_kl", "by_tv"), [((), False), (("medusa", "early-exit"), False), ((), True)])
def test_they_learn_to_match_and_the_target_stays_as_it_is(by_kl: tuple[str, ...], by_tv: bool) -> None:
    target, rows, drafters = small_lm().requires_grad_(False), random_rows(3, length=200), small_drafters()
    before = [weight.clone() for weight in target.parameters()]
    chosen = [made for each in drafters.values() for made in optimizers(each, matrices(each), 0.01, 0.0)]
    first: dict[str, float] = {}
    for _ in range(60):
        loss, parts = distillation_loss(drafters, target, rows, TEMPERATURE, torch.Generator(), by_kl, by_tv)
        first = first or {name: float(value) for name, value in parts.items()}
        for optimizer in chosen:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in chosen:
            optimizer.step()
    for name, value in parts.items():
        assert float(value) > first[name] + 0.02, name
    assert all(torch.equal(a, b) for a, b in zip(before, target.parameters(), strict=True))


def test_a_checkpoint_holds_the_drafters_it_was_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small_lm().config
    target = SpeechLm(SpeechLmConfig(128, 2, transformer=replace(config.transformer, layers=4)))
    made = {kind: new_drafter(kind, target, {}) for kind in KINDS}
    assert isinstance(made["early-exit"], ExitHead)
    assert made["early-exit"].config.layers == 1
    path = tmp_path / "drafters.pt"
    torch.save({"step": 1, "parts": {kind: each.state_dict() for kind, each in made.items() if kind != "model"}}, path)
    loaded = load_drafters(path, target)
    assert set(loaded) == set(KINDS) - {"model"}
    for kind, each in loaded.items():
        for name, weight in each.state_dict().items():
            assert torch.equal(weight, made[kind].state_dict()[name])
    assert new_drafter("medusa", target, loaded) is loaded["medusa"]


@torch.no_grad()
def test_an_untrained_exit_of_all_layers_is_the_target() -> None:
    """It begins with the target's own norm, so it need not learn what it is already."""
    target, rows = small_lm(), random_rows(4)
    head = module.untrained("early-exit", target)
    assert isinstance(head, ExitHead)
    _, (residual,) = target.transformer.states(input_vectors(target, rows), (2,))
    torch.testing.assert_close(head(residual), hidden_states(target, rows))
