"""The one function that decides: against a slow reference written from the papers' words, and in distribution."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from models.lm_stream import StreamInput
from models.speech_lm import NO_TOKEN
from tests.speculate.streams import VOCABULARY
from tts_spec.speculate.noise import GumbelNoise
from tts_spec.speculate.sampling import HISTORY, Sampler, SamplingOptions
from tts_spec.speculate.script import Allowed

SIZE = VOCABULARY.codebook_size
ALL = Allowed(audio=True, advance=True, end=True)
Vector = npt.NDArray[np.float32]


def reference(
    logits: Vector, allowed: Allowed, history: Sequence[StreamInput], options: SamplingOptions
) -> dict[int, float]:
    """Score of every option that may be chosen, one step at a time, in Python floats."""
    scores = {i: float(value) for i, value in enumerate(logits) if not math.isinf(value)}
    legal = {i for i in scores if i < SIZE} if allowed.audio else set()
    legal |= {SIZE} if allowed.advance and SIZE in scores else set()
    legal |= {SIZE + 1} if allowed.end and SIZE + 1 in scores else set()
    scores = {i: scores[i] for i in legal}
    due = history[-1].due
    for token in {item.token for item in history[-HISTORY:]}:
        if token != NO_TOKEN and token // SIZE == due and token % SIZE in scores:
            score = scores[token % SIZE]
            scores[token % SIZE] = (
                score / options.repetition_penalty if score > 0 else score * options.repetition_penalty
            )
    if options.temperature == 0:
        return scores
    scores = {i: score / options.temperature for i, score in scores.items()}
    if options.top_k:
        scores = dict(sorted(scores.items(), key=lambda item: -item[1])[: options.top_k])
    top = max(scores.values())
    total = sum(math.exp(score - top) for score in scores.values())
    kept: dict[int, float] = {}
    mass = 0.0
    for i, score in sorted(scores.items(), key=lambda item: -item[1]):
        if options.top_p == 1 or mass < options.top_p * total:
            kept[i] = score
        mass += math.exp(score - top)
    return kept


def random_history(rng: random.Random, due: int) -> list[StreamInput]:
    tokens = [rng.choice([NO_TOKEN, rng.randrange(VOCABULARY.advance)]) for _ in range(rng.randint(1, 2 * HISTORY))]
    return [StreamInput(token, 0, 1, 0) for token in tokens[:-1]] + [StreamInput(tokens[-1], 0, 1, due)]


def random_case(rng: random.Random) -> tuple[Vector, Allowed, list[StreamInput]]:
    due = rng.randrange(4)
    logits = np.array([rng.gauss(0, 2) for _ in range(SIZE + 2)], np.float32)
    if due:
        logits[SIZE:] = -np.inf
        return logits, Allowed(audio=True, advance=False, end=False), random_history(rng, due)
    allowed = rng.choice([Allowed(True, False, False), Allowed(True, True, False), Allowed(True, False, True)])
    allowed = rng.choice([allowed, Allowed(False, True, False), Allowed(False, False, True)])
    return logits, allowed, random_history(rng, 0)


def test_equals_the_slow_reference() -> None:
    rng = random.Random(1)
    for _ in range(1500):
        options = SamplingOptions(
            rng.choice([0.0, 0.3, 0.8, 1.0, 2.0]),
            rng.choice([0, 1, 3, 20, 33, 1000]),
            rng.choice([1.0, 0.999, 0.9, 0.5, 0.01]),
            rng.choice([1.0, 1.1, 2.0]),
        )
        seed, position = rng.randrange(2**63), rng.randrange(10**6)
        logits, allowed, history = random_case(rng)
        sampler = Sampler(options, VOCABULARY, seed, stream=3)
        before = logits.copy()
        decision = sampler.choose(logits, allowed, history, position)
        assert np.array_equal(logits, before)  # the caller's logits stay as they are
        scores = reference(logits, allowed, history, options)
        got = sampler.scores(logits, allowed, history)
        assert set(np.flatnonzero(np.isfinite(got))) == set(scores)
        assert got[list(scores)] == pytest.approx(list(scores.values()), abs=1e-4)
        noise = GumbelNoise(seed, 3, SIZE + 2).at(position) if options.temperature else np.zeros(SIZE + 2)
        best = max(scores, key=lambda i: scores[i] + float(noise[i]))
        expected = history[-1].due * SIZE + best if best < SIZE else VOCABULARY.advance + best - SIZE
        assert decision == expected


def test_illegal_decisions_are_never_chosen() -> None:
    """Also not when the model is nearly certain of them."""
    rng = random.Random(2)
    sampler = Sampler(SamplingOptions(2.0, top_p=0.9), VOCABULARY, 4)
    boundary = [StreamInput(0, 0, 1, 0)]
    for position in range(500):
        logits = np.array([rng.gauss(0, 1) for _ in range(SIZE + 2)], np.float32)
        logits[rng.choice([0, SIZE, SIZE + 1])] = 1000.0
        assert sampler.choose(logits, Allowed(True, False, False), boundary, position) < SIZE
        assert sampler.choose(logits, Allowed(False, True, False), boundary, position) == VOCABULARY.advance
        assert sampler.choose(logits, Allowed(False, False, True), boundary, position) == VOCABULARY.end
        assert sampler.choose(logits, Allowed(True, True, False), boundary, position) != VOCABULARY.end


def test_penalty_reaches_back_exactly_so_far_and_to_its_own_codebook_only() -> None:
    sampler = Sampler(SamplingOptions(0.0, repetition_penalty=2.0), VOCABULARY, 1)
    logits = np.zeros(SIZE + 2, np.float32)
    logits[5], logits[9] = 4.0, 3.0
    boundary = Allowed(True, True, False)
    filler = [StreamInput(3 * SIZE, 0, 1, 0)] * (HISTORY - 1)
    seen = StreamInput(5, 0, 1, 1)
    assert sampler.choose(logits, boundary, [seen, *filler], 0) == 9
    assert sampler.choose(logits, boundary, [seen, *filler, filler[0]], 0) == 5  # forgotten
    assert sampler.choose(logits, boundary, [StreamInput(SIZE + 5, 0, 1, 2), *filler], 0) == 5  # another codebook's
    assert (
        sampler.choose(logits, boundary, [*filler[1:], StreamInput(5, 0, 1, 0)], 0) == 9
    )  # the very last input counts


@pytest.mark.parametrize("temperature", [0.0, 1e-45, 1e-20, 1e-5])
def test_temperatures_next_to_nothing_take_the_most_probable(temperature: float) -> None:
    sampler = Sampler(SamplingOptions(temperature, top_k=3, top_p=0.9), VOCABULARY, 1)
    logits = np.linspace(-30, 30, SIZE + 2).astype(np.float32)
    assert sampler.choose(logits, Allowed(True, False, False), [StreamInput(0, 0, 1, 2)], 7) == 2 * SIZE + SIZE - 1


@pytest.mark.parametrize(
    "options",
    [
        SamplingOptions(1.0),
        SamplingOptions(0.6),
        SamplingOptions(1.0, top_k=6),
        SamplingOptions(1.3, top_p=0.8),
        SamplingOptions(1.0, repetition_penalty=1.5),
    ],
)
def test_frequencies_are_those_of_the_softmax(options: SamplingOptions) -> None:
    """Gumbel-max over the keyed noise draws from the deployed distribution: chi-square over 50,000 positions."""
    count = 50_000
    logits = np.random.default_rng(5).normal(0, 1.2, SIZE + 2).astype(np.float32)
    history = [StreamInput(token, 0, 1, 0) for token in (3, 8, 20)]
    sampler = Sampler(options, VOCABULARY, 123)
    drawn = np.array([sampler.choose(logits, ALL, history, position) for position in range(count)])
    drawn = np.where(drawn >= VOCABULARY.advance, drawn - VOCABULARY.advance + SIZE, drawn)
    scores = reference(logits, ALL, history, options)
    weights = np.exp(np.array(list(scores.values())))
    expected = count * weights / weights.sum()
    observed = np.array([(drawn == i).sum() for i in scores])
    assert observed.sum() == count  # nothing outside
    freedom = len(scores) - 1
    assert ((observed - expected) ** 2 / expected).sum() < freedom + 4 * math.sqrt(2 * freedom)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", float("nan")),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("repetition_penalty", 0.9),
        ("repetition_penalty", 2.5),
    ],
)
def test_bad_options_are_named(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{field} is "):
        SamplingOptions(**{field: value})  # type: ignore[arg-type]
