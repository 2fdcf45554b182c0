"""The round as a pure function of its state, and the caches it leaves behind."""

from __future__ import annotations

import random

import numpy as np
import pytest

from models.lm_stream import LmStream
from models.packed import PackedCache
from models.products import BLOCK, Floats
from tests.speculate.streams import (
    DRAFTERS,
    VOCABULARY,
    WINDOW,
    Outcome,
    lm_stream,
    model_drafter,
    random_text,
    run,
    small_lm,
)
from tts_spec.speculate.round import StreamState, legal_prefix, speculative_round
from tts_spec.speculate.sampling import HISTORY, Sampler, SamplingOptions
from tts_spec.speculate.script import Script

OPTIONS = SamplingOptions(0.9, repetition_penalty=1.2)


@pytest.mark.parametrize("name", ["none", "model", "medusa", "early-exit"])
def test_called_twice_on_a_state_it_gives_the_same(name: str) -> None:
    text = random_text(random.Random(1), 12)
    target, small = lm_stream(small_lm()), lm_stream(small_lm(width=32, layers=1, seed=2))
    script, sampler = Script.empty(VOCABULARY), Sampler(OPTIONS, VOCABULARY, 3)
    text.append_to(script, (target, small), len(text.caps))
    drafter = DRAFTERS[name](script, sampler, small, target)
    state = StreamState()
    while not script.waits(state.script):
        first = speculative_round(target, drafter, script, sampler, state, 6)
        again = speculative_round(target, drafter, script, sampler, state, 6)
        assert again[1:] == first[1:]
        assert again.state[:4] == first.state[:4]
        assert np.array_equal(again.state.features, first.state.features)
        state = first.state
    assert state.position > 5 * WINDOW  # the ring wrapped


def test_state_follows_from_the_decisions_alone() -> None:
    outcome = run(random_text(random.Random(2), 10), model_drafter, 5, OPTIONS, seed=3)
    state = StreamState()
    for done, after in zip(outcome.rounds, outcome.states[1:], strict=True):
        assert 1 <= len(done.decisions) <= 6
        assert done.accepted <= done.drafted <= 5
        assert len(done.decisions) - done.accepted in (0, 1)  # at most one decision is not a draft
        for decision in done.decisions:
            assert outcome.script.is_legal(state.script, decision)
            state = state.after(outcome.script, decision)
        assert (state.position, state.script, state.inputs) == (after.position, after.script, after.inputs)
        assert len(state.inputs) == min(HISTORY, state.position + 1)
    assert outcome.inputs()[-HISTORY:] == list(state.inputs)


def test_a_tail_begins_at_the_next_position() -> None:
    """Samples past a mismatch were made for the positions after the commit, so under the same noise many come true."""
    outcome = run(random_text(random.Random(3), 30), DRAFTERS["random legal"], 7, OPTIONS, seed=3)
    decisions = outcome.decisions
    true = total = 0
    for state in outcome.states[1:]:
        true += sum(a == b for a, b in zip(state.tail, decisions[state.position :], strict=False))
        total += len(state.tail)
    shifted = sum(
        a == b
        for state in outcome.states[1:]
        for a, b in zip(state.tail, decisions[state.position + 4 :], strict=False)
    )
    assert total > 500
    assert true > 3 * shifted


def cached(stream: LmStream, length: int) -> list[Floats]:
    """Keys and values of every position that the next input at ``length`` sees, in order."""
    cache = stream.batch.cache
    assert isinstance(cache, PackedCache)
    places = [position % cache.capacity for position in range(max(0, length - WINDOW + 1), length)]
    keys = [cache.keys[:, 0, :, place // BLOCK, :, place % BLOCK] for place in places]
    return [*keys, *(cache.values[:, 0, :, place] for place in places)]


def assert_equals_fresh_prefill(outcome: Outcome, text_windows: list[list[int]], length: int) -> None:
    inputs = outcome.inputs()
    fresh = lm_stream(small_lm())
    fresh.extend(text_windows)
    expected_logits = fresh.forward(inputs[: length + 1], 0)[-1]
    logits = outcome.target.forward(inputs[length : length + 1], length)[-1]
    assert np.array_equal(logits, expected_logits)
    for got, expected in zip(cached(outcome.target, length), cached(fresh, length), strict=True):
        assert np.array_equal(got, expected)


@pytest.mark.parametrize("gamma", [1, 5, 15])
@pytest.mark.parametrize("drafter", ["model", "random legal", "medusa", "early-exit", "early-exit while sure"])
def test_cache_after_rollbacks_equals_a_fresh_prefill(gamma: int, drafter: str) -> None:
    """At the end of a stream of many windows, and on the way."""
    rng = random.Random(gamma)
    text = random_text(rng, 16)
    # A stream cut off at a random moment: its last round has left rejected drafts behind.
    for limit in (3, rng.randint(20, 150), 6 * WINDOW):
        outcome = run(text, DRAFTERS[drafter], gamma, OPTIONS, seed=5, limit=limit)
        length = outcome.states[-1].position
        assert_equals_fresh_prefill(outcome, text.windows, length)
    assert length > 5 * WINDOW


def test_legal_prefix_stops_at_the_first_illegal_decision() -> None:
    script = Script.empty(VOCABULARY)
    script.append(1, end=True)
    frame = [0, 32, 64, 96]
    state = StreamState()
    assert legal_prefix(script, state, [*frame, VOCABULARY.end, 0]) == [*frame, VOCABULARY.end]
    assert legal_prefix(script, state, [*frame, 1]) == frame  # the cap is reached
    assert legal_prefix(script, state, [0, 1, 64]) == [0]  # wrong codebook
    assert legal_prefix(script, state, [VOCABULARY.end]) == []
    assert legal_prefix(script, state, [*frame, VOCABULARY.advance]) == frame
