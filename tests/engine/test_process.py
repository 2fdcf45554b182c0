"""The engine in a process of its own: the same speech, other failures."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tts_spec.engine.options import EngineOptions
from tts_spec.engine.port import EngineInfo, Event
from tts_spec.engine.process import ProcessEngine, ProcessSession, _heard
from tts_spec.engine.worker import EngineSetup
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import Chunk, SpeakOptions, SpeechError

TIMEOUT = 120.0


class Reader:
    def __init__(self, engine: ProcessEngine, **fields: Any) -> None:
        self.events: queue.Queue[Event] = queue.Queue()
        self.session: ProcessSession = engine.open(SpeakOptions(**({"live": False} | fields)), self.events.put)

    def next(self) -> Event:
        event = self.events.get(timeout=TIMEOUT)
        self.session.consumed()
        return event

    def all(self) -> list[Chunk]:
        chunks = []
        while not chunks or chunks[-1].stats is None:
            event = self.next()
            assert isinstance(event, Chunk), event
            chunks.append(event)
        return chunks


def happens(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def cpu_s(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def engine(tiny_bundle: Path) -> Iterator[ProcessEngine]:
    options = EngineOptions(max_sessions=3, max_queued=0, max_outstanding=4, max_pending_chars=500)
    engine = ProcessEngine(EngineSetup(tiny_bundle, "cpu", "float32", options))
    yield engine
    engine.close()
    assert not engine.ready


def test_it_speaks_what_the_engine_of_this_process_speaks(engine: ProcessEngine, tiny: Synthesizer) -> None:
    assert engine.info == tiny.engine().info
    readers = [Reader(engine, seed=seed) for seed in range(3)]
    for reader in readers:
        reader.session.text("Hello there. ")
        reader.session.text("Fine!")
        reader.session.end()
    for seed, reader in enumerate(readers):
        chunks = reader.all()
        alone = tiny.speak("Hello there. Fine!", seed=seed)
        assert chunks[-1].stats is not None
        assert chunks[-1].stats.token_hash == alone.stats.token_hash
        assert tuple(word for chunk in chunks for word in chunk.words) == alone.words
    assert happens(lambda: engine.active == 0)
    metrics = engine.metrics()
    assert metrics["sessions_active"] == 0
    assert metrics["tokens_total"] > 0
    assert metrics["resident_memory_bytes"] > 1e7


def test_e35_a_cancel_frees_the_slot_and_nothing_follows(engine: ProcessEngine) -> None:
    reader = Reader(engine)
    reader.session.text("A very long sentence that goes on and on. " * 10)
    reader.next()
    reader.session.cancel()
    assert happens(lambda: engine.active == 0)
    while not reader.events.empty():  # sent before the cancel
        reader.events.get()
    time.sleep(0.1)
    assert reader.events.empty()
    with pytest.raises(SpeechError, match="no more text"):
        reader.session.text("more")


def test_bad_requests_are_refused_at_once(engine: ProcessEngine) -> None:
    with pytest.raises(SpeechError, match="voice is 'nobody'; allowed: one, two"):
        Reader(engine, voice="nobody")
    reader = Reader(engine)
    with pytest.raises(SpeechError, match="500 characters"):
        reader.session.text("x" * 501)
    reader.session.end()
    assert reader.all()[-1].stats is not None


def test_too_many_are_told_when_to_come_again(engine: ProcessEngine) -> None:
    assert happens(lambda: engine.active == 0)  # the session of the test before may not be gone yet
    readers = [Reader(engine) for _ in range(4)]
    event = readers[3].next()
    assert isinstance(event, SpeechError)
    assert event.code == "overloaded"
    assert event.retry_after_ms is not None
    for reader in readers[:3]:
        reader.session.cancel()
    assert happens(lambda: engine.active == 0)


def test_a_process_that_dies_fails_its_sessions_and_another_is_there_at_once(
    engine: ProcessEngine, caplog: pytest.LogCaptureFixture
) -> None:
    reader = Reader(engine)
    reader.session.text("A very long sentence that goes on and on. " * 10)
    reader.next()
    old = engine.pid
    assert old is not None
    found: list[tuple[bool, str, int | None]] = []

    def look_around(event: Event) -> None:
        if isinstance(event, SpeechError):  # no other process has been asked for yet
            with pytest.raises(SpeechError) as caught:
                Reader(engine)
            found.append((engine.ready, caught.value.code, caught.value.retry_after_ms))
        reader.events.put(event)

    reader.session.listener = look_around
    os.kill(old, signal.SIGKILL)
    event = reader.next()
    while isinstance(event, Chunk):
        event = reader.next()
    assert event.code == "internal"
    assert "started again" in event.message
    assert found == [(False, "overloaded", 4000)]
    assert happens(lambda: engine.ready)
    assert engine.pid != old
    assert engine.pid is not None
    assert cpu_s(engine.pid) < 5  # so long on a machine with nothing else to do; nobody waits for anything else
    reader.session.cancel()  # of the one that is gone: harmless
    again = Reader(engine)
    again.session.text("Hello.")
    again.session.end()
    assert again.all()[-1].stats is not None
    assert engine.metrics()["restarts_total"] == 1
    assert "exit code -9" in caplog.text


class Stuck:
    """An engine in a turn that never ends."""

    ready = True
    stuck_s = 1000.0

    def __init__(self, setup: EngineSetup) -> None:
        self.info = EngineInfo(24_000, (), (), "none")

    def metrics(self) -> dict[str, float]:
        return {}

    def close(self) -> None: ...


def test_a_process_that_hangs_is_killed_and_replaced(caplog: pytest.LogCaptureFixture) -> None:
    engine = ProcessEngine(EngineSetup(), Stuck, hang_s=0.3)
    try:
        first = engine.pid
        assert happens(lambda: engine.ready and engine.pid != first)
        assert "no sign of life" in caplog.text
    finally:
        engine.close()


class Silences:
    """The end of a pipe at which every wait is over at once: True a message has come, False none came in time."""

    def __init__(self, *comes: bool) -> None:
        self.comes = list(comes)
        self.waited: list[float] = []

    def poll(self, seconds: float) -> bool:
        self.waited.append(seconds)
        if not self.comes:
            raise EOFError
        return self.comes.pop(0)

    def recv(self) -> tuple[str]:
        return ("beat",)


def test_a_process_that_was_only_stopped_for_a_while_goes_on() -> None:
    """The whole machine may have stood still: the first silence says little."""
    pipe: Any = Silences(True, False, True, True, False, True)
    with pytest.raises(EOFError):  # not before its end
        for _ in _heard(pipe, lambda: 10.0):
            pass
    hung: Any = Silences(True, False, True, False, False, True)
    assert len(list(_heard(hung, lambda: 10.0))) == 2
    assert hung.waited == [10.0] * 5


def test_an_engine_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(SpeechError, match=r"did not start: BundleError: .*there is no bundle\.json") as caught:
        ProcessEngine(EngineSetup(tmp_path))
    assert caught.value.code == "not_ready"


def test_the_servers_process_has_no_torch() -> None:
    program = "import sys, service.server, tts_spec.cli, tts_spec.engine.process; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


def test_f42_an_engine_that_stands_still_holds_up_no_caller(engine: ProcessEngine) -> None:
    pid = engine.pid
    assert pid is not None
    assert happens(lambda: engine.metrics()["sessions_active"] == 0)
    readers: list[Reader] = []

    def call() -> None:
        readers.extend(Reader(engine) for _ in range(3))
        for reader in readers:
            for _ in range(40):
                reader.session.text("Hello there.")
            reader.session.flush()
            for _ in range(3000):
                reader.session.consumed(0)  # more than a pipe holds
        readers[2].session.cancel()
        engine.metrics()

    os.kill(pid, signal.SIGSTOP)
    try:
        caller = threading.Thread(target=call, daemon=True)
        caller.start()
        caller.join(TIMEOUT)
        assert not caller.is_alive()
        assert engine.active == 3
        assert engine.metrics()["sessions_active"] == 0  # as it last told
    finally:
        os.kill(pid, signal.SIGCONT)
    for reader in readers[:2]:
        assert isinstance(reader.next(), Chunk)
        reader.session.cancel()
    assert happens(lambda: engine.active == 0)
