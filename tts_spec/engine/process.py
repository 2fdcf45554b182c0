"""An engine in a process of its own: what it computes does not delay the event loop, and what kills it does not kill the server.

When the process dies its live sessions hear so and another is started; while there is none, ``ready`` is False and nobody is let in.
Knows the pipe's messages (``worker``) and no torch.
"""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any

from tts_spec.engine.port import EngineInfo, Listener
from tts_spec.engine.worker import EngineSetup, load_engine, main
from tts_spec.types import SpeakOptions, SpeechError

log = logging.getLogger(__name__)

START_WITHIN_S = 300.0  # the first start on a machine compiles
HANG_S = (
    10.0  # no sign of life for so long, twice: killed. Once may be a machine that stood still, where we wake up first
)
CLOSE_WITHIN_S = 2.0
RESTART_MS = 4000  # what a client is told while there is no process
PAUSES_S = (0.0, 1.0, 5.0)  # before a start, by how many in a row have failed


class ProcessSession:
    """See ``Session``."""

    def __init__(self, send: Callable[..., None], key: int, listener: Listener, max_chars: int) -> None:
        self._send = send
        self._key = key
        self._max_chars = max_chars
        self.listener = listener
        self.read_chars = 0
        self._received = 0
        self._ended = False

    def text(self, piece: str) -> None:
        """See ``Session.text``."""
        if self._ended:
            raise SpeechError("closed", "text after end: the session takes no more text", "text")
        if self._received + len(piece) - self.read_chars > self._max_chars:
            raise SpeechError("too_long", f"more than {self._max_chars} characters are waiting to be spoken", "text")
        self._received += len(piece)
        self._send("text", self._key, piece)

    def flush(self) -> None:
        """See ``Session.flush``."""
        if self._ended:
            raise SpeechError("closed", "flush after end: the session takes no more text", None)
        self._send("flush", self._key)

    def end(self) -> None:
        """See ``Session.end``."""
        if not self._ended:
            self._ended = True
            self._send("end", self._key)

    def cancel(self) -> None:
        """See ``Session.cancel``."""
        self._ended = True
        self.listener = lambda _: None
        self._send("cancel", self._key)

    def consumed(self, chunks: int = 1) -> None:
        """See ``Session.consumed``."""
        self._send("consumed", self._key, chunks)


class ProcessEngine:
    """See ``tts_spec.engine.port.Engine``. Listeners are called on a thread that reads the pipe."""

    def __init__(
        self, setup: EngineSetup, make: Callable[[EngineSetup], Any] = load_engine, hang_s: float = HANG_S
    ) -> None:
        """Returns when the engine, which ``make`` makes in the process, is warm. Raises SpeechError ``not_ready`` with what hindered it."""
        self._setup = setup
        self._hang_s = hang_s
        self._make = make
        self._keys = itertools.count()
        self._lock = threading.Lock()  # of the sessions, and of which process they are sent to
        self._sessions: dict[int, ProcessSession] = {}
        self._outbox: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._metrics: dict[str, float] = {}
        self._refused = 0
        self._restarts = 0
        self._info: EngineInfo | None = None
        self._failure = ""
        self._ready = self._closing = False
        self._started = threading.Event()
        self._process: Any = None
        self._thread = threading.Thread(target=self._supervise, name="engine supervisor", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._info is None:
            self.close()
            raise SpeechError("not_ready", f"the engine did not start: {self._failure}")

    @property
    def info(self) -> EngineInfo:
        """See ``Engine.info``."""
        assert self._info is not None
        return self._info

    @property
    def active(self) -> int:
        """See ``Engine.active``; sessions that wait are among them."""
        return len(self._sessions)

    @property
    def ready(self) -> bool:
        """See ``Engine.ready``."""
        return self._ready and not self._closing

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        pid: int | None = self._process.pid if self._process is not None else None
        return pid

    def metrics(self) -> Mapping[str, float]:
        """See ``Engine.metrics``; as the process last told, at most half a second ago."""
        told = self._metrics
        refused = told.get("sessions_refused_total", 0.0) + self._refused
        return {**told, "sessions_refused_total": refused, "restarts_total": self._restarts}

    def open(self, options: SpeakOptions, listener: Listener) -> ProcessSession:
        """See ``Engine.open``."""
        self.info.check(options)
        limits = self._setup.options
        with self._lock:
            if not self.ready:
                self._refused += 1
                message = f"the engine is being started; try again in {RESTART_MS} ms"
                raise SpeechError("overloaded", message, None, RESTART_MS)
            key = next(self._keys)
            session = ProcessSession(self._send, key, listener, limits.max_pending_chars)
            self._sessions[key] = session
            self._send("open", key, options)
        return session

    def close(self) -> None:
        """See ``Engine.close``."""
        self._closing = True
        self._send("close", 0)
        self._thread.join(CLOSE_WITHIN_S)
        if self._thread.is_alive() and self._process is not None:
            self._process.kill()
            self._thread.join(CLOSE_WITHIN_S)

    def _send(self, *message: Any) -> None:
        self._outbox.put(message)

    def _supervise(self) -> None:
        failures = 0
        while not self._closing:
            wait_s = PAUSES_S[min(failures, len(PAUSES_S) - 1)]
            if wait_s:
                threading.Event().wait(wait_s)
            warm = self._run_once()
            if self._info is None:
                break  # the first start: whoever waits for it is told
            failures = 0 if warm else failures + 1
            if not self._closing:
                self._restarts += 1
                log.error("the engine's process ended: %s; starting another", self._failure or "no reason given")
        self._started.set()

    def _run_once(self) -> bool:
        """One process from start to end; whether it got warm."""
        # A process forked from one that has imported everything and done nothing: half the time of a fresh one.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tts_spec.synthesizer"])
        ours, theirs = context.Pipe()
        self._failure = ""
        outbox: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._outbox = outbox
        self._process = process = context.Process(
            target=main, args=(theirs, self._setup, self._make), name="tts-engine", daemon=True
        )
        process.start()
        theirs.close()
        sender = threading.Thread(target=_pump, args=(outbox, ours), name="engine sender", daemon=True)
        sender.start()
        warm = False
        try:
            for message in _heard(ours, lambda: self._hang_s if self._ready else START_WITHIN_S):
                warm = self._take(*message) or warm
            self._failure = "it gave no sign of life"
        except (EOFError, OSError):
            pass
        with self._lock:
            self._ready = False
            sessions, self._sessions = self._sessions, {}
        process.kill()
        process.join()
        outbox.put(None)
        sender.join()
        ours.close()
        if not self._closing:
            self._failure = self._failure or f"exit code {process.exitcode}"
            error = SpeechError(
                "internal", "the engine stopped unexpectedly and is started again; try again in a moment"
            )
            for session in sessions.values():
                _tell(session, error)
        return warm

    def _take(self, kind: str, key: Any, *values: Any) -> bool:
        """One message of the process; whether it says that it is warm."""
        if kind == "ready":
            self._info = key
            self._ready = True
            self._started.set()
            return True
        if kind == "failed":
            self._failure = key
        elif kind == "beat":
            self._metrics = values[0]
        elif kind == "gone":
            with self._lock:
                self._sessions.pop(key, None)
            self._metrics = values[0]
        elif kind == "event" and (session := self._sessions.get(key)) is not None:
            session.read_chars = values[1]
            _tell(session, values[0])
        return False


def _pump(outbox: queue.SimpleQueue[tuple[Any, ...] | None], connection: Connection[Any, Any]) -> None:
    """Write what is put into ``outbox``, so that no caller ever waits for the pipe."""
    try:
        while (message := outbox.get()) is not None:
            connection.send(message)
    except OSError:
        pass  # the reader of the other direction notices


def _heard(connection: Connection[Any, Any], patience_s: Callable[[], float]) -> Iterator[tuple[Any, ...]]:
    """What comes through the pipe, until two silences of ``patience_s`` follow each other. Raises EOFError or OSError at the pipe's end."""
    while any(connection.poll(patience_s()) for _ in range(2)):
        yield connection.recv()


def _tell(session: ProcessSession, event: Any) -> None:
    try:
        session.listener(event)
    except Exception:
        log.exception("a session's listener failed")
