"""Planted bugs: the round with one thing wrong must no longer say what plain decoding says, and right it must.

A mutant is the round's own source with a few characters changed, so that it stays the round of today.
"""

from __future__ import annotations

import functools
import inspect
import random

import numpy as np
import pytest

from tests.speculate.streams import RoundFunction, Text, model_drafter, plain, random_text, run
from tts_spec.speculate import round as module
from tts_spec.speculate.noise import GumbelNoise
from tts_spec.speculate.round import speculative_round
from tts_spec.speculate.sampling import SamplingOptions

OPTIONS = SamplingOptions(0.8, repetition_penalty=1.6)

MUTANTS = {
    "commits the rejected draft": (
        "decisions = samples[: accepted + 1]",
        "decisions = drafts[: accepted + 1] or samples[:1]",
    ),
    "drops the target's own decision": (
        "decisions = samples[: accepted + 1]",
        "decisions = samples[: max(1, accepted)]",
    ),
    "accepts one draft unseen": (
        "decisions = samples[: accepted + 1]",
        "accepted = min(accepted + 1, len(samples) - 1)\n    decisions = samples[: accepted + 1]",
    ),
    "noise keyed by the round": ("each.inputs, each.position)", "each.inputs, state.position)"),
    "noise keyed one late": ("each.inputs, each.position)", "each.inputs, each.position + (each is not state))"),
    "penalty without the last draft": (
        "each.inputs, each.position)",
        "states[max(0, each.position - state.position - 1)].inputs[:-1] + each.inputs[-1:], each.position)",
    ),
    "penalty without any draft": (
        "each.inputs, each.position)",
        "state.inputs[:-1] + each.inputs[-1:], each.position)",
    ),
    "cache not rolled back": ("start=state.position", "start=target.batch.cache.lengths[0]"),
    "cache rolled back one too far": ("start=state.position", "start=max(0, state.position - 1)"),
    "script of the round's start": (
        "script.allowed(each.script)",
        "script.allowed(state.script._replace(due=each.script.due))",
    ),
}


def mutant(old: str, new: str) -> RoundFunction:
    source = inspect.getsource(speculative_round)
    assert source.count(old) == 1, "the round has changed: plant the bug anew"
    scope = dict(vars(module))
    exec(source.replace(old, new), scope)
    made: RoundFunction = scope["speculative_round"]
    return made


@functools.cache
def sentences() -> list[tuple[Text, list[int]]]:
    """Texts and what plain decoding says of them."""
    rng = random.Random(21)
    texts = [random_text(rng, 8) for _ in range(3)]
    return [(text, plain(text, OPTIONS, seed=9).decisions) for text in texts]


def equal_to_plain(round_function: RoundFunction) -> bool:
    """The equality check of test_coupled on a few sentences."""
    for text, expected in sentences():
        outcome = run(text, model_drafter, 4, OPTIONS, seed=9, round_function=round_function, limit=len(expected) + 1)
        if outcome.decisions != expected:
            return False
    return True


def test_the_round_as_it_is_passes() -> None:
    assert equal_to_plain(mutant("# Draft.", "# Unchanged."))


@pytest.mark.parametrize("name", MUTANTS)
def test_planted_bug_is_caught(name: str) -> None:
    assert not equal_to_plain(mutant(*MUTANTS[name]))


def test_sequential_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator that is asked once per sample, whatever the position."""
    sentences()  # what plain says under the right noise
    rng = np.random.default_rng(3)

    def at(self: GumbelNoise, position: int) -> object:
        return rng.gumbel(size=self._options).astype(np.float32)

    monkeypatch.setattr(GumbelNoise, "at", at)
    assert not equal_to_plain(speculative_round)
