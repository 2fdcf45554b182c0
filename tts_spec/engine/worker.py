"""The engine's own process: a ``LocalEngine`` at one end of a pipe. See ``ProcessEngine`` for the other end.

Loads the bundle, warms up, says that it is ready, then does what comes through the pipe; ends when the pipe or the engine does. Knows the
pipe's messages; knows no socket.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tts_spec.engine.options import EngineOptions
from tts_spec.engine.port import Engine, Event, Session
from tts_spec.types import Budget, SpeakOptions, SpeechError

BEAT_S = 0.5  # between two signs of life
STUCK_S = 5.0  # a turn of the engine that takes longer is no sign of life
SWITCH_S = 0.001  # the engine's thread lets the pipe's have the interpreter after at most so long
WARM_TEXT = "Ready."
WARM_TOGETHER = 3  # sessions at once, so that rounds of several are compiled and their cost is known


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """What an engine is made of; see ``Synthesizer.load``."""

    bundle: Path | None = None
    device: str = "auto"
    dtype: str = "auto"
    options: EngineOptions = field(default_factory=EngineOptions)
    lexicon: Mapping[str, str] = field(default_factory=dict)


def load_engine(setup: EngineSetup) -> Engine:
    """The engine of ``setup``, warm: every voice's dictionary, every network and rounds of several sessions have been used once."""
    from tts_spec.synthesizer import Synthesizer

    engine = Synthesizer.load(setup.bundle, setup.device, setup.dtype, setup.lexicon).engine(setup.options)
    voices = {voice.language: voice.name for voice in engine.info.voices}
    _speak(engine, [SpeakOptions(voice=name, live=False) for name in voices.values()])
    live = SpeakOptions(
        budget=Budget(first_audio_ms=60_000.0)
    )  # live: from these the engine learns what first audio takes
    _speak(engine, [live] * min(WARM_TOGETHER, setup.options.max_sessions))
    return engine


def _speak(engine: Engine, sessions: list[SpeakOptions]) -> None:
    over = threading.Semaphore(0)
    failed: list[SpeechError] = []
    opened: dict[int, Session] = {}

    def listen(number: int, event: Event) -> None:
        opened[number].consumed()
        if isinstance(event, SpeechError):
            failed.append(event)
        if isinstance(event, SpeechError) or event.stats is not None:
            over.release()

    for number, options in enumerate(sessions):
        opened[number] = engine.open(options, functools.partial(listen, number))
        opened[number].text(WARM_TEXT)  # nothing is heard before
        opened[number].end()
    for _ in sessions:
        over.acquire()
    if failed:
        raise failed[0]


def main(
    connection: Connection[Any, Any], setup: EngineSetup, make: Callable[[EngineSetup], Any] = load_engine
) -> None:
    """The process. ``make`` gives an engine that also has what only ``LocalEngine`` has: ``stuck_s``, and ``gone`` of ``open``."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # meant for whoever drains; we end when told, or when the pipe does
    sys.setswitchinterval(SWITCH_S)
    try:
        engine = make(setup)
    except Exception as error:
        connection.send(("failed", f"{type(error).__name__}: {error}"))
        return
    try:
        _Worker(connection, engine).run()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # nobody is left to speak for
    finally:
        engine.close()


class _Worker:
    def __init__(self, connection: Connection[Any, Any], engine: Any) -> None:
        self._connection = connection
        self._engine = engine
        self._sending = threading.Lock()
        self._sessions: dict[int, Session] = {}

    def run(self) -> None:
        self._send(("beat", 0, self._metrics()))
        self._send(("ready", self._engine.info))
        beat_at = time.monotonic() + BEAT_S
        while self._engine.ready:
            if time.monotonic() >= beat_at and self._engine.stuck_s < STUCK_S:
                self._send(("beat", 0, self._metrics()))
                beat_at = time.monotonic() + BEAT_S
            if not self._connection.poll(BEAT_S):
                continue
            kind, key, *values = self._connection.recv()
            if kind == "close":
                return
            if kind == "open":
                self._open(key, *values)
            elif (session := self._sessions.get(key)) is not None:
                try:
                    getattr(session, kind)(*values)
                except SpeechError as error:  # the other end has checked: this one is for whoever comes without it
                    session.cancel()
                    self._send(("event", key, error, 0))

    def _open(self, key: int, options: SpeakOptions) -> None:
        left = threading.Event()

        def listen(event: Event) -> None:
            self._send(("event", key, event, getattr(self._sessions.get(key), "read_chars", 0)))

        def gone() -> None:
            left.set()
            self._sessions.pop(key, None)
            self._send(("gone", key, self._metrics()))

        try:
            self._sessions[key] = self._engine.open(options, listen, gone)
        except SpeechError as error:
            self._send(("event", key, error, 0))
            self._send(("gone", key, self._metrics()))
        if left.is_set():
            self._sessions.pop(key, None)

    def _metrics(self) -> dict[str, float]:
        return {**self._engine.metrics(), "resident_memory_bytes": _resident_bytes()}

    def _send(self, message: tuple[Any, ...]) -> None:
        with self._sending:
            self._connection.send(message)


def _resident_bytes() -> float:
    """RSS of this process; 0 where the system does not tell."""
    statm = Path("/proc/self/statm")
    return float(statm.read_text().split()[1]) * os.sysconf("SC_PAGESIZE") if statm.exists() else 0.0
