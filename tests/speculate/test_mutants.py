"""Planted bugs: the round with one thing wrong must no longer say what plain decoding says, and right it must.

A mutant is the round's own source with a few characters changed, so that it stays the round of today.
"""

from __future__ import annotations

import functools
import inspect
import random

import numpy as np
import pytest

from tests.speculate.streams import RoundFunction, Text, TreeDrafter, model_drafter, plain, random_text, run
from tts_spec.speculate import round as module
from tts_spec.speculate.noise import GumbelNoise
from tts_spec.speculate.round import speculative_round
from tts_spec.speculate.sampling import SamplingOptions

OPTIONS = SamplingOptions(0.8, repetition_penalty=1.6)

AT = "at.inputs, at.position)"
MUTANTS = {
    "commits the rejected draft": (
        "    while right := [",
        "    decisions[0] = (*draft.decisions, decisions[0])[0]\n    while right := [",
    ),
    "commits one decision too few": ("nodes[path[len(decisions) - 1]]", "nodes[path[max(0, len(decisions) - 2)]]"),
    "accepts one draft unseen": (
        "draft.decisions[child - 1] == decisions[-1]]",
        "draft.decisions[child - 1] == decisions[-1] or len(decisions) == 2][:1]",
    ),
    "noise keyed by the round": (AT, "at.inputs, state.position)"),
    "noise keyed one late": (AT, "at.inputs, at.position + (at is not state))"),
    "noise keyed by the row": (AT, "at.inputs, state.position + rows[node])"),
    "penalty without the last draft": (
        AT,
        "nodes[(draft.parents[node - 1] + 1) if node else 0].inputs[:-1] + at.inputs[-1:], at.position)",
    ),
    "penalty without any draft": (AT, "state.inputs[:-1] + at.inputs[-1:], at.position)"),
    "cache not rolled back": ("inputs, state.position, None", "inputs, target.batch.cache.lengths[0], None"),
    "cache rolled back one too far": ("inputs, state.position, None", "inputs, max(0, state.position - 1), None"),
    "script of the round's start": (
        "script.allowed(at.script)",
        "script.allowed(state.script._replace(due=at.script.due))",
    ),
    "a tree taken for a line": ("None if is_line else parents", "None"),
    "branches see each other": (
        "None if is_line else parents",
        "None if is_line else [-1, *range(len(parents) - 1)]",
    ),
    "the path left where it lay": ("        target.keep(state.position, kept)", "        pass"),
    "the path kept without its last": (
        "target.keep(state.position, kept)",
        "target.keep(state.position, [0, *kept[:-1]])",
    ),
    "the first branch whatever was accepted": (
        "target.keep(state.position, kept)",
        "target.keep(state.position, list(range(len(kept))))",
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
    texts = [random_text(rng, 8) for _ in range(8)]
    return [(text, plain(text, OPTIONS, seed=9).decisions) for text in texts]


def equal_to_plain(round_function: RoundFunction) -> bool:
    """The equality check of test_coupled on a few sentences; what a bug makes fail counts as caught."""
    for text, expected in sentences():
        for drafter in (model_drafter, TreeDrafter):
            limit = len(expected) + 1
            try:
                outcome = run(text, drafter, 5, OPTIONS, seed=9, round_function=round_function, limit=limit)
            except ValueError:
                return False
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
