"""The script: no phoneme vanishes, none hangs, sentences end where they end."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.speculate.streams import VOCABULARY, random_decision
from tts_spec.speculate.script import Allowed, Script, ScriptState

PHONEMES = st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=12)


def make(phonemes: list[tuple[int, bool]]) -> Script:
    script = Script.empty(VOCABULARY)
    for cap, end in phonemes:
        script.append(cap, end=end)
    return script


@given(PHONEMES, st.integers(0, 2**32))
@settings(deadline=None, max_examples=150)
def test_any_legal_walk_speaks_every_phoneme(phonemes: list[tuple[int, bool]], seed: int) -> None:
    script, rng = make(phonemes), random.Random(seed)
    state, walk = ScriptState(), []
    while not script.waits(state):
        decision = random_decision(script, state, rng)
        assert script.is_legal(state, decision)
        walk.append((state, decision))
        state = script.after(state, decision)
    assert state == ScriptState(phoneme=len(phonemes))
    for index, (cap, end) in enumerate(phonemes):
        own = [decision for at, decision in walk if at.phoneme == index]
        *tokens, leave = own
        assert leave == (VOCABULARY.end if end else VOCABULARY.advance)
        books = [token // VOCABULARY.codebook_size for token in tokens]
        frames = len(tokens) // VOCABULARY.codebooks
        assert books == list(range(VOCABULARY.codebooks)) * frames  # whole frames, codebooks in order
        assert 1 <= frames <= cap
    longest = sum(cap * VOCABULARY.codebooks + 1 for cap, _ in phonemes)
    assert len(walk) <= longest


@given(PHONEMES, st.integers(0, 2**32))
@settings(deadline=None, max_examples=50)
def test_legal_decisions_are_exactly_those_allowed_at_the_due_codebook(
    phonemes: list[tuple[int, bool]], seed: int
) -> None:
    script, rng = make(phonemes), random.Random(seed)
    state = ScriptState()
    while not script.waits(state):
        allowed = script.allowed(state)
        assert any(allowed)
        first = state.due * VOCABULARY.codebook_size
        expected = set(range(first, first + VOCABULARY.codebook_size)) if allowed.audio else set()
        expected |= {VOCABULARY.advance} if allowed.advance else set()
        expected |= {VOCABULARY.end} if allowed.end else set()
        assert {each for each in range(VOCABULARY.end + 1) if script.is_legal(state, each)} == expected
        state = script.after(state, random_decision(script, state, rng))
    assert not any(script.is_legal(state, each) for each in range(VOCABULARY.end + 1))


def test_states_where_only_one_kind_is_left() -> None:
    script = make([(2, False), (1, True)])
    must_speak, must_advance, must_end = (
        Allowed(True, False, False),
        Allowed(False, True, False),
        Allowed(False, False, True),
    )
    assert script.allowed(ScriptState(0, frames=0, due=0)) == must_speak
    assert script.allowed(ScriptState(0, frames=1, due=3)) == must_speak
    assert script.allowed(ScriptState(0, frames=1, due=0)) == Allowed(audio=True, advance=True, end=False)
    assert script.allowed(ScriptState(0, frames=2, due=0)) == must_advance
    assert script.allowed(ScriptState(1, frames=0, due=0)) == must_speak
    assert script.allowed(ScriptState(1, frames=1, due=0)) == must_end
    assert script.waits(ScriptState(2))


def test_more_text_changes_nothing_that_was_known() -> None:
    script = make([(3, False)])
    states = [ScriptState(0, frames, due) for frames in range(4) for due in range(4) if frames or not due]
    before = [script.allowed(state) for state in states]
    script.append(5, end=True)
    assert [script.allowed(state) for state in states] == before


@pytest.mark.parametrize("cap", [0, -1])
def test_a_phoneme_needs_room_for_a_frame(cap: int) -> None:
    with pytest.raises(ValueError, match=f"cap is {cap}"):
        Script.empty(VOCABULARY).append(cap, end=False)
