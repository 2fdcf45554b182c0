"""How long a line the model drafter proposes follows how sure it is, and that is sound."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.speculate.streams import VOCABULARY, lm_stream, random_text, small_lm
from tts_spec.speculate.drafters import ModelDrafter
from tts_spec.speculate.line import chance
from tts_spec.speculate.noise import GumbelNoise
from tts_spec.speculate.round import StreamState, speculative_round
from tts_spec.speculate.sampling import Sampler, SamplingOptions
from tts_spec.speculate.script import Allowed, Script


def test_the_margin_is_the_lead_of_the_best_score_and_the_choice_is_the_same() -> None:
    sampler = Sampler(SamplingOptions(0.7, top_p=0.9), VOCABULARY, 3)
    inputs = StreamState().inputs
    rng = np.random.default_rng(1)
    for position in range(50):
        logits = rng.normal(size=VOCABULARY.codebook_size + 2).astype(np.float32)
        allowed = Allowed(audio=True, advance=position % 2 == 0, end=False)
        decision, second, margin = sampler.choose_two(logits, allowed, inputs, position)
        assert decision == sampler.choose(logits, allowed, inputs, position)
        scores = sampler.scores(logits, allowed, inputs) + GumbelNoise(3, 0, len(logits)).at(position)
        places = np.argsort(scores)[:-3:-1]
        assert [VOCABULARY.option(decision), VOCABULARY.option(second)] == places.tolist()
        assert margin == pytest.approx(scores[places[0]] - scores[places[1]], abs=1e-6)


def test_a_sole_option_is_sure() -> None:
    sampler = Sampler(SamplingOptions(0.7), VOCABULARY, 3)
    logits = np.zeros(VOCABULARY.codebook_size + 2, np.float32)
    only = Allowed(audio=False, advance=True, end=False)
    decision, _, margin = sampler.choose_two(logits, only, StreamState().inputs, 0)
    assert (decision, margin) == (VOCABULARY.advance, float("inf"))
    assert chance(margin) == 1.0
    assert 0 < chance(0.0) < chance(1.0) < chance(3.0) < 1


def test_unsure_lines_end_early() -> None:
    text = random_text(random.Random(5), 30)
    lengths = {}
    for enough in (0.0, 0.4, 0.8):
        target, small = lm_stream(small_lm()), lm_stream(small_lm(width=32, layers=1, seed=2))
        script, sampler = Script.empty(VOCABULARY), Sampler(SamplingOptions(0.8), VOCABULARY, 7)
        text.append_to(script, (target, small), len(text.caps))
        drafter = ModelDrafter(small, script, sampler, likely_enough=enough)
        state, drafted, rounds = StreamState(), 0, 0
        while not script.waits(state.script):
            done = speculative_round(target, drafter, script, sampler, state, 6)
            state, drafted, rounds = done.state, drafted + done.longest, rounds + 1
        lengths[enough] = drafted / rounds
    assert lengths[0.0] > 5
    assert lengths[0.0] > lengths[0.4] > lengths[0.8] >= 1


def test_where_it_is_unsure_its_second_choice_is_proposed_too() -> None:
    """As a leaf beside the first, never past the number asked for, and it is right more often than by chance."""
    text = random_text(random.Random(6), 60)
    target, small = lm_stream(small_lm()), lm_stream(small_lm(width=32, layers=1, seed=2))
    script, sampler = Script.empty(VOCABULARY), Sampler(SamplingOptions(0.8), VOCABULARY, 7)
    text.append_to(script, (target, small), len(text.caps))
    drafter, state = ModelDrafter(small, script, sampler), StreamState()
    rivals = right = full = 0
    while not script.waits(state.script):
        draft = drafter.propose(state, 4)
        length = 0
        while length < len(draft.parents) and draft.parents[length] == length - 1:
            length += 1
        done = speculative_round(target, drafter, script, sampler, state, 4)
        for node in range(length, len(draft.decisions)):
            place = draft.parents[node] + 1
            rivals += 1
            right += len(done.decisions) > place and done.decisions[: place + 1] == (
                *draft.decisions[:place],
                draft.decisions[node],
            )
        full += len(draft.decisions) == 4
        assert len(draft.decisions) <= 4
        state = done.state
    assert full > 20
    assert rivals > 50
    assert right / rivals > 2 / VOCABULARY.codebook_size
