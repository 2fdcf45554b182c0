"""What every drafter owes the round, whatever it is made of."""

from __future__ import annotations

import random

import pytest

from tests.speculate.streams import DRAFTERS, VOCABULARY, lm_stream, random_text, small_lm
from tts_spec.speculate.drafters import NoDrafter
from tts_spec.speculate.round import StreamState, speculative_round
from tts_spec.speculate.sampling import Sampler, SamplingOptions
from tts_spec.speculate.script import Script

PURE = sorted(set(DRAFTERS) - {"random ids", "random legal", "tail", "tree"})  # the drafters of the product


@pytest.mark.parametrize("name", sorted(DRAFTERS))
@pytest.mark.parametrize("gamma", [1, 4, 15])
def test_proposals_are_legal_trees_of_at_most_so_many_guesses(name: str, gamma: int) -> None:
    """Also while text arrives bit by bit, and when other rounds, and rounds without it, come between."""
    rng = random.Random(gamma)
    text = random_text(rng, 12)
    target, small = lm_stream(small_lm()), lm_stream(small_lm(width=32, layers=1, seed=2, conditioned=True))
    script, sampler = Script.empty(VOCABULARY), Sampler(SamplingOptions(0.9), VOCABULARY, 7)
    drafter = DRAFTERS[name](script, sampler, small, target)
    state, proposed = StreamState(), 0
    while len(script) < len(text.caps) or not script.waits(state.script):
        if len(script) < len(text.caps) and (script.waits(state.script) or rng.random() < 0.2):
            text.append_to(script, (target, small), min(len(text.caps), len(script) + rng.randint(1, 3)))
            continue
        draft = drafter.propose(state, gamma)
        assert len(draft.decisions) == len(draft.parents) <= gamma
        nodes = [state.script]
        guesses: set[tuple[int, int]] = set()
        for node, (guess, parent) in enumerate(zip(draft.decisions, draft.parents, strict=True)):
            assert -1 <= parent < node
            assert script.is_legal(nodes[parent + 1], guess)
            assert (parent, guess) not in guesses
            guesses.add((parent, guess))
            nodes.append(script.after(nodes[parent + 1], guess))
        if name in PURE:
            again = drafter.propose(state, gamma)
            assert (list(again.decisions), list(again.parents)) == (list(draft.decisions), list(draft.parents))
        proposed += len(draft.decisions)
        state = speculative_round(target, rng.choice([drafter, NoDrafter()]), script, sampler, state, gamma).state
    assert (proposed > 50) == (name != "none")


@pytest.mark.parametrize("name", sorted(DRAFTERS))
def test_it_proposes_nothing_when_nothing_is_asked_for(name: str) -> None:
    text = random_text(random.Random(3), 2)
    target, small = lm_stream(small_lm()), lm_stream(small_lm(width=32, layers=1, seed=2, conditioned=True))
    script, sampler = Script.empty(VOCABULARY), Sampler(SamplingOptions(0.9), VOCABULARY, 7)
    text.append_to(script, (target, small), len(text.caps))
    assert not DRAFTERS[name](script, sampler, small, target).propose(StreamState(), 0).decisions
