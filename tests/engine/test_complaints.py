"""What users of such services complain about, as far as the engine can do it wrong: cut or extra audio, stutter, sessions mixed up.

Names follow the letters of a list of public reports: B audio cut or added, C stutter, D sessions garbled.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tts_spec.engine.local import LocalEngine
from tts_spec.engine.options import EngineOptions
from tts_spec.engine.port import Event
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import Chunk, SpeakOptions

TIMEOUT = 240.0
Speak = Callable[..., "Speaker"]


class Speaker:
    """One session with all its text, and what it has said; ``order`` notes whose chunk came when, over all speakers."""

    def __init__(self, engine: LocalEngine, order: list[Speaker], text: str, **fields: object) -> None:
        self._events: queue.Queue[Event] = queue.Queue()
        self._order = order
        self._session = engine.open(SpeakOptions(**({"live": False} | fields)), self._listen)  # type: ignore[arg-type]
        self._session.text(text)
        self._session.end()

    def _listen(self, event: Event) -> None:
        self._order.append(self)
        self._session.consumed()
        self._events.put(event)

    def all(self) -> list[Chunk]:
        chunks: list[Chunk] = []
        while not chunks or chunks[-1].stats is None:
            event = self._events.get(timeout=TIMEOUT)
            assert isinstance(event, Chunk), event
            chunks.append(event)
        return chunks

    @property
    def quiet(self) -> bool:
        return self._events.empty()


@pytest.fixture(scope="module")
def starter() -> Iterator[Synthesizer]:
    synthesizer = Synthesizer.load(device="cpu")
    yield synthesizer
    synthesizer.close()


@pytest.fixture
def order() -> list[Speaker]:
    return []


@pytest.fixture
def engine(tiny: Synthesizer) -> Iterator[LocalEngine]:
    engine = LocalEngine(tiny.bundle, tiny.frontend, EngineOptions(max_sessions=4))
    yield engine
    engine.close()


@pytest.fixture
def speak(engine: LocalEngine, order: list[Speaker]) -> Speak:
    return lambda text, **fields: Speaker(engine, order, text, **fields)


def words(chunks: list[Chunk]) -> list[str]:
    return [word.text for chunk in chunks for word in chunk.words]


def samples(chunks: list[Chunk]) -> int:
    return sum(len(chunk.pcm) for chunk in chunks)


def token_hash(chunks: list[Chunk]) -> str:
    assert chunks[-1].stats is not None
    return chunks[-1].stats.token_hash


@pytest.mark.parametrize("text", ["So it ends.", "So it ends", "So it ends... ", "Does it? So it ends!"])
def test_b10_b12_the_last_word_is_whole_and_the_end_is_said_once(speak: Speak, text: str) -> None:
    speaker = speak(text)
    chunks = speaker.all()
    assert words(chunks)[-1] == "ends"
    last = chunks[-1].stats
    assert last is not None
    assert last.audio_s == pytest.approx(samples(chunks) / 24_000)
    end_s = max(word.end_s for chunk in chunks for word in chunk.words)
    assert end_s <= last.audio_s + 1e-9  # all of it was given
    assert sum(chunk.stats is not None for chunk in chunks) == 1
    assert speaker.quiet


def test_b14_a_long_text_is_spoken_to_its_end(speak: Speak) -> None:
    text = "This is one more sentence of a text that goes on. " * 12
    chunks = speak(text).all()
    assert samples(chunks) / 24_000 > 20
    assert words(chunks) == [word.strip(".") for word in text.split()]


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.3])
def test_b15_b16_a_short_text_has_no_tail_of_noise(starter: Synthesizer, temperature: float) -> None:
    for seed in range(4):
        for text in ("Hi.", "No!", "Yes"):
            speech = starter.speak(text, seed=seed, temperature=temperature)
            end_s = max(word.end_s for word in speech.words)
            assert speech.stats.audio_s < 2.5
            assert speech.stats.audio_s - end_s < 1.2


def test_c20_the_third_request_is_like_the_first(speak: Speak) -> None:
    made = [speak("The same words again.", seed=5, drafter="model", gamma=3).all() for _ in range(3)]
    first_chunks = [next(len(chunk.pcm) for chunk in chunks if len(chunk.pcm)) for chunks in made]
    assert first_chunks == [600] * 3  # one frame
    assert len({token_hash(chunks) for chunks in made}) == 1
    assert len({chunks[-1].stats.target_passes for chunks in made if chunks[-1].stats}) == 1


def test_c27_who_comes_together_is_served_together(engine: LocalEngine, speak: Speak, order: list[Speaker]) -> None:
    all_there = threading.Event()
    engine.post(lambda: all_there.wait(TIMEOUT) and None)
    speakers = [speak("A sentence of some length for each of them.", seed=seed) for seed in range(4)]
    all_there.set()
    for speaker in speakers:
        speaker.all()
    firsts = [order.index(speaker) for speaker in speakers]
    lasts = [len(order) - 1 - order[::-1].index(speaker) for speaker in speakers]
    assert max(firsts) < min(lasts)


def test_d28_everybody_keeps_their_own_voice(speak: Speak, tiny: Synthesizer) -> None:
    text = "Whose voice is this?"
    alone = {voice: tiny.speak(text, voice=voice, seed=1).stats.token_hash for voice in ("one", "two")}
    assert alone["one"] != alone["two"]
    voices = ["one", "two", "two", "one"]
    speakers = [speak(text, voice=voice, seed=1) for voice in voices]
    assert [token_hash(speaker.all()) for speaker in speakers] == [alone[voice] for voice in voices]


def test_d30_d32_two_alike_are_still_two(speak: Speak, order: list[Speaker]) -> None:
    one, two = speak("Exactly the same.", seed=7), speak("Exactly the same.", seed=7)
    first, second = one.all(), two.all()
    assert token_hash(first) == token_hash(second)
    assert samples(first) == samples(second) > 0
    np.testing.assert_allclose(
        np.concatenate([chunk.pcm for chunk in first]), np.concatenate([chunk.pcm for chunk in second]), atol=1e-3
    )
    assert order.count(one) == len(first)
    assert order.count(two) == len(second)
