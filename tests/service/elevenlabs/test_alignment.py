"""The character clock: no gap, no overlap, nothing lost, whenever words become known."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.elevenlabs.alignment import CharacterClock, Span
from service.elevenlabs.messages import Alignment
from tts_spec.types import Word, WordOnset

TEXT = "Hello there, my friend. "


def words_of(text: str, step_s: float = 0.4, pause_s: float = 0.2) -> list[Word]:
    """Every word sounds for ``step_s``; after punctuation there is a pause."""
    at_s, found = 0.0, []
    for match in re.finditer(r"\w+", text):
        found.append(Word(match.group(), match.start(), match.end(), at_s, at_s + step_s))
        at_s += step_s
        if text[match.end() : match.end() + 1] in ",.":
            at_s += pause_s
    return found


def told(text: str, words: list[Word], cuts: list[float], *, late: bool) -> list[Span]:
    """The spans of pieces that end at ``cuts``. ``late``: a word is known when it is over, its beginning when it begins, as the engine
    has it; else all at once.
    """
    clock, start_s, spans, left, begun = CharacterClock(), 0.0, [], list(words), list(words)
    clock.text(text)
    for end_s in cuts:
        known = [word for word in left if not late or word.end_s <= end_s]
        left = [word for word in left if word not in known]
        begin = [word for word in begun if not late or word.start_s < end_s]
        begun = [word for word in begun if word not in begin]
        clock.words([WordOnset(word.text, word.start_char, word.end_char, word.start_s) for word in begin], known)
        spans.append(clock.take(start_s, end_s, last=end_s == cuts[-1]))
        start_s = end_s
    return spans


@given(
    st.lists(st.floats(0.02, 3.0), min_size=1, max_size=12),
    st.booleans(),
    st.sampled_from([TEXT, "a b c", "one", "\u201cOne.\u201d Two"]),
)
@settings(deadline=None, max_examples=150)
def test_h54_spans_fill_every_piece_and_hold_every_character_once(pieces: list[float], late: bool, text: str) -> None:
    words = words_of(text)
    total_s = words[-1].end_s + 0.1
    cuts = sorted({min(cut, total_s) for cut in pieces} | {total_s})
    spans = told(text, words, cuts, late=late)
    assert "".join(character for span in spans for character in span.characters) == text
    for start_s, end_s, span in zip([0.0, *cuts], cuts, spans, strict=False):
        assert span.starts_s[0] == start_s
        assert span.end_s == end_s
        assert list(span.starts_s) == sorted(span.starts_s)
        assert all(start_s <= at <= end_s for at in span.starts_s)
        assert len(span.characters) == len(span.starts_s) == len(span.ends_s)


@given(st.lists(st.floats(0.01, 0.5), min_size=1, max_size=30))
@settings(deadline=None, max_examples=60)
def test_the_frames_milliseconds_add_up_to_the_audio(pieces: list[float]) -> None:
    """pipecat's clock is their sum (elevenlabs-python#707, #772)."""
    cuts = [sum(pieces[: n + 1]) for n in range(len(pieces))]
    frames = [Alignment.of(span) for span in told(TEXT, words_of(TEXT), cuts, late=True)]
    total_ms = 0
    for frame in frames:
        assert frame.charStartTimesMs[0] == 0
        assert frame.charsDurationsMs == frame.charDurationsMs
        assert min(frame.charDurationsMs) >= 0
        total_ms += frame.charStartTimesMs[-1] + frame.charDurationsMs[-1]
    assert total_ms == round(1000 * cuts[-1])


def onsets(spans: list[Span], text: str) -> dict[int, float]:
    starts = [at for span in spans for character, at in zip(span.characters, span.starts_s, strict=True) if character]
    return {match.start(): starts[match.start()] for match in re.finditer(r"\w+", text)}


@pytest.mark.parametrize("piece_s", [0.025, 0.1, 0.2, 0.3])
def test_words_begin_at_their_time_although_their_end_is_known_late(piece_s: float) -> None:
    words = words_of(TEXT)
    cuts = [piece_s * n for n in range(1, round(2.0 / piece_s) + 1)]
    found = onsets(told(TEXT, words, cuts, late=True), TEXT)
    for word in words:
        # A pause before the first word of a piece counts to that word: the spans have no gap.
        assert word.start_s - piece_s <= found[word.start_char] <= word.start_s + 0.001
        if word.start_char == 0 or TEXT[word.start_char - 2] not in ",.":
            assert found[word.start_char] == pytest.approx(word.start_s, abs=0.001)


def test_known_words_are_spread_over_their_time() -> None:
    (span,) = told("abcd ef", [Word("abcd", 0, 4, 0.0, 0.4), Word("ef", 5, 7, 0.5, 0.7)], [1.0], late=False)
    assert "".join(span.characters) == "abcd ef"
    assert span.starts_s == pytest.approx((0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6))


def test_silence_and_a_word_still_going_on_have_an_empty_entry() -> None:
    clock = CharacterClock()
    clock.text("Hello")
    clock.words([WordOnset("Hello", 0, 5, 0.05)], [])
    assert clock.take(0.0, 0.04) == Span(("",), (0.0,), 0.04)
    assert clock.take(0.04, 0.1).characters == ("H",)
    assert clock.take(0.1, 0.2) == Span(("",), (0.1,), 0.2)
    clock.words([], [Word("Hello", 0, 5, 0.0, 0.5)])
    span = clock.take(0.2, 0.6)
    assert span.characters == tuple("ello")
    assert span.starts_s == pytest.approx((0.2, 0.2, 0.3, 0.4))


def test_text_that_is_not_spoken_is_told_between_its_neighbours() -> None:
    spans = told("hi 🙂 you", [Word("hi", 0, 2, 0.0, 0.2), Word("you", 5, 8, 0.2, 0.5)], [0.3, 0.6], late=True)
    assert "".join(character for span in spans for character in span.characters) == "hi 🙂 you"
