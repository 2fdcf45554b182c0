"""Streams end to end on random weights: what is promised does not depend on how well they speak."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_spec.engine.plan import plan
from tts_spec.engine.stream import SpeechStream
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import Chunk, SpeakOptions, SpeechError

TEXT = "Hello there, Dr. Smith. How are you today? Fine!"


def open_stream(synthesizer: Synthesizer, **fields: object) -> SpeechStream:
    options = SpeakOptions(**fields)  # type: ignore[arg-type]
    return SpeechStream(synthesizer.bundle, synthesizer.frontend, plan(synthesizer.bundle.manifest, options))


def run(stream: SpeechStream) -> list[Chunk]:
    chunks = []
    while stream.ready:
        chunk = stream.step()
        if chunk is not None:
            chunks.append(chunk)
    return chunks


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("gamma", [1, 4, 15])
def test_speculation_changes_nothing_that_is_heard(tiny: Synthesizer, temperature: float, gamma: int) -> None:
    plain = tiny.speak(TEXT, drafter="none", temperature=temperature, seed=5)
    drafted = tiny.speak(TEXT, drafter="model", gamma=gamma, temperature=temperature, seed=5)
    assert drafted.stats.token_hash == plain.stats.token_hash
    assert drafted.words == plain.words
    np.testing.assert_allclose(drafted.pcm, plain.pcm, atol=1e-3)
    assert drafted.stats.target_passes < plain.stats.target_passes


def test_ratio_mode_follows_the_seed_but_not_plain_decoding(tiny: Synthesizer) -> None:
    plain = tiny.speak("Hello there.", seed=5, drafter="none")
    ratio = tiny.speak("Hello there.", seed=5, drafter="model", mode="ratio")
    again = tiny.speak("Hello there.", seed=5, drafter="model", mode="ratio")
    assert ratio.stats.token_hash == again.stats.token_hash != plain.stats.token_hash
    assert [word.text for word in ratio.words] == [word.text for word in plain.words]
    assert ratio.stats.tau > 1
    greedy = [
        tiny.speak("Hello there.", temperature=0, drafter="model", mode=mode).stats for mode in ("coupled", "ratio")
    ]
    assert greedy[0].token_hash == greedy[1].token_hash


@given(cuts=st.lists(st.integers(0, len(TEXT)), max_size=8))
@settings(max_examples=10, deadline=None)
def test_output_does_not_depend_on_how_the_text_arrives(tiny: Synthesizer, cuts: list[int]) -> None:
    whole = tiny.speak(TEXT, seed=1)
    stream = open_stream(tiny, seed=1)
    chunks = []
    edges = sorted({0, len(TEXT), *cuts})
    for begin, end in pairwise(edges):
        stream.text(TEXT[begin:end])
        chunks += run(stream)  # all that can be said before the next piece comes
    stream.end()
    chunks += run(stream)
    assert chunks[-1].stats is not None
    assert chunks[-1].stats.token_hash == whole.stats.token_hash
    assert tuple(word for chunk in chunks for word in chunk.words) == whole.words
    np.testing.assert_allclose(np.concatenate([chunk.pcm for chunk in chunks]), whole.pcm, atol=1e-3)


def test_first_chunk_is_one_frame_and_later_ones_grow(tiny: Synthesizer) -> None:
    stream = open_stream(tiny, gamma=0)
    stream.text(TEXT)
    stream.end()
    sizes = [len(chunk.pcm) // 600 for chunk in run(stream) if len(chunk.pcm)]
    assert sizes[:11] == [1, 1, 1, 2, 2, 2, 4, 4, 8, 8, 12]
    assert max(sizes) == 12


@pytest.mark.parametrize("text", ["", "   ", "\n", "...", "?!", "😊", "<b></b>"])
def test_h52_text_without_words_ends_at_once_without_audio(tiny: Synthesizer, text: str) -> None:
    speech = tiny.speak(text)
    assert len(speech.pcm) == 0
    assert speech.words == ()
    assert speech.stats.target_passes == 0
    assert speech.stats.rtf == 0


def test_what_cannot_be_spoken_is_named(tiny: Synthesizer) -> None:
    speech = tiny.speak("Good 😊 day.")
    assert [(w.code, w.start) for w in speech.warnings] == [("unspeakable", 5)]
    assert [word.text for word in speech.words] == ["Good", "day"]


def test_a_word_is_told_with_the_audio_in_which_it_begins_and_again_when_it_is_over(tiny: Synthesizer) -> None:
    begun: dict[int, float] = {}
    given_s = 0.0
    for chunk in tiny.stream(["Hello there, my good old friend."], seed=4):
        for onset in chunk.onsets:
            assert onset.start_char not in begun
            assert onset.start_s >= given_s  # none of its sound has gone before
            begun[onset.start_char] = onset.start_s
        for word in chunk.words:
            assert begun[word.start_char] == word.start_s
        given_s += len(chunk.pcm) / chunk.sample_rate
        assert all(word.start_s <= given_s for word in chunk.words)
    assert len(begun) == 6


def test_words_point_at_the_callers_characters_and_cover_the_audio_in_order(tiny: Synthesizer) -> None:
    text = "It costs $5. Call me!"
    speech = tiny.speak(text)
    assert [text[w.start_char : w.end_char] for w in speech.words] == [w.text for w in speech.words]
    times = [t for w in speech.words for t in (w.start_s, w.end_s)]
    assert times == sorted(times)
    assert times[-1] <= len(speech.pcm) / 24_000 + 1e-9


def test_an_explicit_break_is_silence_of_its_length(tiny: Synthesizer) -> None:
    plain = tiny.speak("One two. Three.")
    broken = tiny.speak('One two. <break time="700ms"/> Three.')
    first, second = (w for w in broken.words if w.text in ("two", "Three"))
    start, end = round(first.end_s * 24_000), round(second.start_s * 24_000)
    silent = np.flatnonzero(broken.pcm[start:end] == 0)
    assert len(silent) >= 0.7 * 24_000
    assert len(broken.pcm) > len(plain.pcm)


def test_flush_is_reported_once_its_text_is_spoken(tiny: Synthesizer) -> None:
    stream = open_stream(tiny)
    stream.text("Hello")
    assert run(stream) == []
    stream.flush()
    chunks = run(stream)
    assert [chunk.flushed for chunk in chunks if chunk.flushed] == [1]
    assert chunks[-1].flushed == 1
    assert [word.text for chunk in chunks for word in chunk.words] == ["Hello"]
    assert not stream.finished
    stream.text(" again.")
    stream.end()
    rest = run(stream)
    assert sum(chunk.flushed for chunk in rest) == 0
    assert rest[-1].stats is not None


def test_a_flush_is_reported_with_the_audio_of_its_text_though_more_follows(tiny: Synthesizer) -> None:
    stream = open_stream(tiny, gamma=7)
    stream.text("Hello.")
    stream.flush()
    stream.text("And much more of it follows, all at once, without any pause. " * 2)
    stream.end()
    chunks = run(stream)
    at = next(index for index, chunk in enumerate(chunks) if chunk.flushed)
    spoken_s = sum(len(chunk.pcm) for chunk in chunks[: at + 1]) / 24_000
    (hello,) = (word for chunk in chunks for word in chunk.words if word.text == "Hello")
    assert hello.end_s <= spoken_s < hello.end_s + 1.5
    assert sum(chunk.flushed for chunk in chunks) == 1


def test_a_flush_of_nothing_is_still_reported(tiny: Synthesizer) -> None:
    stream = open_stream(tiny)
    stream.flush()
    assert [chunk.flushed for chunk in run(stream)] == [1]


def test_voice_speed_and_seed_each_change_the_tokens(tiny: Synthesizer) -> None:
    base = tiny.speak("Hello there.", seed=1).stats.token_hash
    others = [
        tiny.speak("Hello there.", seed=2),
        tiny.speak("Hello there.", seed=1, voice="two"),
        tiny.speak("Hello there.", seed=1, speed=1.3),
    ]
    assert len({base, *(speech.stats.token_hash for speech in others)}) == 4


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"voice": "nobody"}, "voice"),
        ({"speed": 3.0}, "speed"),
        ({"speed": True}, "speed"),
        ({"temperature": -1.0}, "temperature"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"gamma": 16}, "gamma"),
        ({"top_p": 0.0}, "top_p"),
        ({"drafter": "magic"}, "drafter"),
        ({"mode": "lossy"}, "mode"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_bad_option_is_named_with_its_value_and_what_is_allowed(
    tiny: Synthesizer, fields: dict[str, object], name: str
) -> None:
    with pytest.raises(SpeechError, match=r"allowed: ") as caught:
        tiny.speak("Hello.", **fields)
    assert caught.value.field == name


def test_a_long_stream_keeps_no_more_than_it_needs(tiny: Synthesizer) -> None:
    stream = open_stream(tiny, gamma=7)
    stream.text("This is one more sentence of a long text. " * 40)
    stream.end()
    chunks = run(stream)
    assert sum(len(chunk.words) for chunk in chunks) == 9 * 40
    kept = stream._target.entry.shape[0]
    assert kept < 800


def test_an_open_clause_is_spoken_as_it_is_when_told_to_hurry(tiny: Synthesizer) -> None:
    stream = open_stream(tiny)
    stream.text("Hello there my fri")
    assert run(stream) == []
    assert stream.holds
    stream.hurry(whole=False)
    first = run(stream)
    assert [word.text for chunk in first for word in chunk.words] == ["Hello", "there", "my"]
    stream.text("end.")
    stream.end()
    rest = run(stream)
    assert [(word.text, word.start_char) for chunk in rest for word in chunk.words] == [("friend", 15)]
    assert rest[-1].stats is not None
