"""The engine's thread: turns, leaving, limits, failure. Nothing here waits for the clock."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import numpy as np
import pytest

from tts_spec.engine.floor import Floor
from tts_spec.engine.local import LocalEngine, LocalSession
from tts_spec.engine.options import EngineOptions
from tts_spec.engine.port import Event
from tts_spec.engine.stream import SpeechStream
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import Chunk, SpeakOptions, SpeechError

TIMEOUT = 240.0


class Reader:
    """Collects a session's events and reports them consumed."""

    def __init__(self, *, consumes: bool = True) -> None:
        self.events: queue.Queue[Event] = queue.Queue()
        self.consumes = consumes
        self.session: LocalSession

    def __call__(self, event: Event) -> None:
        self.events.put(event)

    def next(self) -> Event:
        event = self.events.get(timeout=TIMEOUT)
        if self.consumes:
            self.session.consumed()
        return event

    def all(self) -> list[Chunk]:
        chunks = []
        while True:
            event = self.next()
            assert isinstance(event, Chunk), event
            chunks.append(event)
            if event.stats is not None:
                return chunks


@pytest.fixture
def engine(tiny: Synthesizer) -> Iterator[LocalEngine]:
    engine = LocalEngine(tiny.bundle, tiny.frontend, EngineOptions(max_sessions=3, max_queued=0, max_outstanding=2))
    yield engine
    engine.close()


def start(engine: LocalEngine, reader: Reader, **fields: object) -> LocalSession:
    """A session that no listener's budget keeps out, however slow the machine: a file."""
    reader.session = engine.open(SpeakOptions(**({"live": False} | fields)), reader)  # type: ignore[arg-type]
    return reader.session


def until_idle(engine: LocalEngine) -> None:
    """Wait until the thread has taken every command and finished its turn."""
    for _ in range(3):
        done: queue.Queue[None] = queue.Queue()
        engine.post(lambda done=done: done.put(None))
        done.get(timeout=TIMEOUT)


def test_d29_sessions_that_take_turns_each_get_what_they_would_get_alone(
    engine: LocalEngine, tiny: Synthesizer
) -> None:
    readers = [Reader() for _ in range(3)]
    texts = ["Hello there.", "How are you?", "Fine!"]
    for index, (reader, text) in enumerate(zip(readers, texts, strict=True)):
        session = start(engine, reader, seed=index, voice=("one", "two")[index % 2])
        session.text(text)
        session.end()
    for index, (reader, text) in enumerate(zip(readers, texts, strict=True)):
        alone = tiny.speak(text, seed=index, voice=("one", "two")[index % 2])
        chunks = reader.all()
        assert chunks[-1].stats is not None
        assert chunks[-1].stats.token_hash == alone.stats.token_hash
        assert np.array_equal(np.concatenate([c.pcm for c in chunks]), alone.pcm)
    until_idle(engine)
    assert engine.active == 0


def test_e34_cancel_stops_within_a_round_and_nothing_follows(engine: LocalEngine) -> None:
    reader = Reader()
    session = start(engine, reader)
    session.text("A very long sentence that goes on and on. " * 50)
    assert isinstance(reader.next(), Chunk)
    session.cancel()
    until_idle(engine)
    assert engine.active == 0
    seen = reader.events.qsize()
    until_idle(engine)
    assert reader.events.qsize() == seen
    session.cancel()  # idempotent
    session.consumed()
    with pytest.raises(SpeechError, match="no more text"):
        session.text("more")


def test_e36_slots_come_back_however_a_session_ends(engine: LocalEngine) -> None:
    for round_number in range(4):
        readers = [Reader() for _ in range(3)]
        sessions = [start(engine, reader) for reader in readers]
        with pytest.raises(SpeechError) as caught:
            engine.open(SpeakOptions(), Reader())
        assert caught.value.code == "overloaded"
        sessions[0].text("Hi.")
        sessions[0].end()
        readers[0].all()
        sessions[1].cancel()
        sessions[2].text("Hello.")
        sessions[2].cancel()
        until_idle(engine)
        assert engine.active == 0, round_number


def test_a_reader_that_stops_pauses_its_session_and_no_other(engine: LocalEngine) -> None:
    slow, quick = Reader(consumes=False), Reader()
    session = start(engine, slow)
    session.text("A long sentence for a reader that takes nothing. " * 5)
    session.end()
    other = start(engine, quick)
    other.text("Hello.")
    other.end()
    quick.all()
    until_idle(engine)
    assert slow.events.qsize() == 2  # max_outstanding
    slow.consumes = True
    session.consumed(0)
    for _ in range(2):
        slow.next()
    assert slow.all()[-1].stats is not None


def test_a_session_that_waits_for_text_costs_nothing_and_blocks_nobody(engine: LocalEngine) -> None:
    waiting, quick = Reader(), Reader()
    session = start(engine, waiting, max_wait_ms=60_000.0)
    session.text("Half a sen")
    other = start(engine, quick)
    other.text("Hello.")
    other.end()
    assert quick.all()[-1].stats is not None
    assert waiting.events.empty()
    session.text("tence.")
    session.end()
    words = [word.text for chunk in waiting.all() for word in chunk.words]
    assert words == ["Half", "a", "sentence"]


def test_a_failing_session_says_so_and_the_others_go_on(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, fine = Reader(), Reader()
    session = start(engine, broken, seed=13)
    step = SpeechStream.step

    def failing(stream: SpeechStream) -> Chunk | None:
        if stream.plan.seed == 13:
            raise RuntimeError("the disk is on fire")
        return step(stream)

    monkeypatch.setattr(SpeechStream, "step", failing)
    other = start(engine, fine, seed=1)
    session.text("Hello.")
    session.end()
    other.text("Hello.")
    other.end()
    event = broken.next()
    assert isinstance(event, SpeechError)
    assert event.code == "internal"
    assert "the disk is on fire" in event.message
    assert fine.all()[-1].stats is not None
    until_idle(engine)
    assert engine.active == 0
    assert "a session failed" in caplog.text


def test_whatever_fails_for_one_session_the_engine_goes_on(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def deaf(_: Event) -> None:
        raise RuntimeError("the event loop is closed")

    session = engine.open(SpeakOptions(), deaf)
    session.text("Hello.")
    session.end()
    mute = Reader()
    with monkeypatch.context() as patch:
        patch.setattr(SpeechStream, "text", lambda *_: 1 / 0)
        start(engine, mute).text("Hello.")
        event = mute.next()
    assert isinstance(event, SpeechError)
    unborn = Reader()
    with monkeypatch.context() as patch:
        patch.setattr(SpeechStream, "__init__", lambda *_: 1 / 0)
        lost = start(engine, unborn)
        lost.text("Hello.")
        event = unborn.next()
    assert isinstance(event, SpeechError)
    until_idle(engine)
    assert engine.active == 0
    assert "the event loop is closed" in caplog.text
    for _ in range(3):  # every slot is back
        reader = Reader()
        session = start(engine, reader)
        session.text("Hi.")
        session.end()
        assert reader.all()[-1].stats is not None


def test_an_engine_that_breaks_tells_its_sessions_and_takes_no_more(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reader = Reader(consumes=False)
    session = start(engine, reader)
    monkeypatch.setattr(Floor, "turn", lambda _: 1 / 0)
    session.text("Hello.")
    event = reader.next()
    while isinstance(event, Chunk):
        event = reader.next()
    assert event.code == "internal"
    engine._thread.join(TIMEOUT)
    assert not engine.ready
    with pytest.raises(SpeechError) as caught:
        engine.open(SpeakOptions(), Reader())
    assert caught.value.code == "overloaded"
    assert "the engine stopped" in caplog.text


def test_too_much_waiting_text_is_refused_and_the_session_lives(tiny: Synthesizer) -> None:
    engine = LocalEngine(tiny.bundle, tiny.frontend, EngineOptions(max_pending_chars=20))
    try:
        reader = Reader()
        session = start(engine, reader)
        session.text("Hello there.")
        with pytest.raises(SpeechError, match="20 characters") as caught:
            session.text("x" * 30)
        assert (caught.value.code, caught.value.field) == ("too_long", "text")
        session.end()
        assert [word.text for chunk in reader.all() for word in chunk.words] == ["Hello", "there"]
    finally:
        engine.close()


def test_bad_options_are_refused_at_open_and_take_no_slot(engine: LocalEngine) -> None:
    for _ in range(5):
        with pytest.raises(SpeechError, match="voice is 'nobody'; allowed: one, two"):
            engine.open(SpeakOptions(voice="nobody"), Reader())
    reader = Reader()
    session = start(engine, reader)
    session.text("Hi.")
    session.end()
    reader.all()
