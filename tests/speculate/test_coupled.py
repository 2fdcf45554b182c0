"""Coupled speculation says what plain decoding says, token for token, whoever drafts and however much."""

from __future__ import annotations

import itertools
import math
import random

import pytest
import torch

from tests.speculate.streams import (
    DRAFTERS,
    FixedDrafter,
    Text,
    model_drafter,
    no_drafter,
    plain,
    random_options,
    random_text,
    run,
    small_lm,
)
from tts_spec.speculate.sampling import SamplingOptions

GAMMAS = (1, 2, 4, 7, 15)
TEMPERATURES = (0.0, 0.7, 1.0)
BY_THE_TARGET = (
    "model",
    "feature",
    "medusa",
    "early-exit",
    "early-exit while sure",
)  # drafters that use its states or its cache, and one that does not
SENTENCES = 14  # x 15 combinations = 210


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("gamma", GAMMAS)
def test_same_tokens_as_plain(gamma: int, temperature: float) -> None:
    rng = random.Random(f"{gamma} {temperature}")
    # One stream per drafter, each with its own sentences and filters.
    drafters = [name for name in DRAFTERS if name != "none"]
    shares = [SENTENCES // len(drafters) + (i < SENTENCES % len(drafters)) for i in range(len(drafters))]
    rng.shuffle(shares)
    for name, sentences in zip(drafters, shares, strict=True):
        text = random_text(rng, sentences)
        options, seed = random_options(rng, temperature), rng.randrange(2**63)
        expected = plain(text, options, seed)
        outcome = run(text, DRAFTERS[name], gamma, options, seed)
        assert outcome.decisions == expected.decisions, (name, options, seed)
        assert outcome.states[-1].script == expected.states[-1].script


@pytest.mark.slow
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_same_tokens_as_plain_over_200_sentences_each(temperature: float) -> None:
    rng = random.Random(31)
    for _ in range(10):
        text = random_text(rng, 20)
        options, seed = random_options(rng, temperature), rng.randrange(2**63)
        expected = plain(text, options, seed).decisions
        for gamma, drafter in itertools.product(GAMMAS, ("tail", *BY_THE_TARGET)):
            assert run(text, DRAFTERS[drafter], gamma, options, seed).decisions == expected, (
                drafter,
                gamma,
                options,
                seed,
            )


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_perfect_drafts_are_all_accepted_in_the_fewest_passes(temperature: float) -> None:
    rng = random.Random(11)
    text = random_text(rng, 12)
    options = random_options(rng, temperature)
    expected = plain(text, options, seed=4).decisions
    for gamma in GAMMAS:
        outcome = run(text, lambda *_: FixedDrafter(expected), gamma, options, seed=4)
        assert outcome.decisions == expected
        assert outcome.acceptance == 1.0
        assert len(outcome.rounds) == math.ceil(len(expected) / (gamma + 1))


def test_one_wrong_draft_costs_only_what_follows_it() -> None:
    """Accepted counts what stands before the first difference, and the pass's own decision comes on top."""
    text = random_text(random.Random(12), 6)
    options = SamplingOptions(0.9)
    expected = plain(text, options, seed=4).decisions
    for wrong in range(5):
        drafts = list(expected)
        book = drafts[wrong] // 32
        drafts[wrong] = book * 32 + (drafts[wrong] + 1) % 32
        first = run(text, lambda *_, drafts=drafts: FixedDrafter(drafts), 4, options, seed=4).rounds[0]
        assert first.drafted == 4
        assert first.accepted == min(wrong, 4)
        assert list(first.decisions) == expected[: min(wrong, 4) + 1]


def test_gamma_may_change_from_round_to_round() -> None:
    rng = random.Random(13)
    text = random_text(rng, 8)
    for temperature in TEMPERATURES:
        options = random_options(rng, temperature)
        expected = plain(text, options, seed=8).decisions
        outcome = run(text, model_drafter, lambda: rng.randint(0, 15), options, seed=8)
        assert outcome.decisions == expected


@pytest.mark.parametrize("drafter", ["none", "random legal", *BY_THE_TARGET])
def test_when_the_text_arrives_does_not_matter(drafter: str) -> None:
    rng = random.Random(14)
    for temperature in TEMPERATURES:
        text = random_text(rng, 7)
        options = random_options(rng, temperature)
        outcome = run(text, DRAFTERS[drafter], 7, options, seed=2, arrivals=rng)
        assert outcome.decisions == plain(text, options, seed=2).decisions


def test_seed_and_text_do_matter() -> None:
    text = random_text(random.Random(15), 8)
    other = Text([window[::-1] for window in text.windows], text.caps, text.ends)
    options = SamplingOptions(0.8)
    base = plain(text, options, seed=1).decisions
    assert plain(text, options, seed=1).decisions == base
    assert plain(text, options, seed=2).decisions != base
    assert plain(other, options, seed=1).decisions != base


@pytest.mark.parametrize("name", BY_THE_TARGET)
def test_bfloat16_weights_give_the_same_tokens_too(name: str) -> None:
    """Packed products do not depend on the number of rows, so equality is not for float32 alone."""
    target = small_lm(dtype=torch.bfloat16)
    rng = random.Random(16)
    text = random_text(rng, 8)
    for temperature in TEMPERATURES:
        options = random_options(rng, temperature)
        expected = run(text, no_drafter, 0, options, 5, target=target).decisions
        assert run(text, DRAFTERS[name], 7, options, 5, target=target).decisions == expected


def test_another_noise_in_the_drafter_costs_acceptance_not_equality() -> None:
    text = random_text(random.Random(17), 40)
    options = SamplingOptions(1.0)
    coupled = run(text, model_drafter, 3, options, seed=6)

    uncoupled = run(text, DRAFTERS["other noise"], 3, options, seed=6)
    assert uncoupled.decisions == coupled.decisions
    assert uncoupled.acceptance < 0.95 * coupled.acceptance
