"""The engine on a thread of this process: live sessions take turns, one round each.

Callers never wait and never take a lock: they put commands into a queue that the thread drains between rounds. Sessions wait here for
text or for a slow reader at no cost. Knows streams and threads; knows no socket.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from models.bundle import Bundle
from tts_spec.engine.plan import plan
from tts_spec.engine.port import EngineInfo, Listener
from tts_spec.engine.stream import SpeechStream
from tts_spec.text.frontend import Frontend
from tts_spec.types import SpeakOptions, SpeechError, VoiceInfo

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Limits of the engine."""

    max_sessions: int = 16
    max_outstanding: int = 32  # chunks given and not yet reported consumed; a session pauses there
    max_pending_chars: int = 100_000  # text of one session not yet spoken

    def __post_init__(self) -> None:
        for name in ("max_sessions", "max_outstanding", "max_pending_chars"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; allowed: a whole number from 1")


class LocalSession:
    """See ``tts_spec.engine.port.Session``. Fields without underscore belong to the engine's thread."""

    def __init__(self, engine: LocalEngine, options: SpeakOptions, listener: Listener) -> None:
        self._engine = engine
        self.options = options
        self.listener = listener
        self.stream: SpeechStream  # made on the engine's thread before any other command
        self.outstanding = 0
        self.cancelled = False
        self._ended = False
        self._received = 0
        self.read_chars = 0

    def text(self, piece: str) -> None:
        """See ``Session.text``."""
        if self._ended:
            raise SpeechError("closed", "text after end: the session takes no more text", "text")
        limit = self._engine.options.max_pending_chars
        if self._received + len(piece) - self.read_chars > limit:
            raise SpeechError("too_long", f"more than {limit} characters are waiting to be spoken", "text")
        self._received += len(piece)
        self._engine.post(lambda: self._to_stream(lambda stream: stream.text(piece)))

    def flush(self) -> None:
        """See ``Session.flush``."""
        if self._ended:
            raise SpeechError("closed", "flush after end: the session takes no more text", None)
        self._engine.post(lambda: self._to_stream(SpeechStream.flush))

    def end(self) -> None:
        """See ``Session.end``."""
        if not self._ended:
            self._ended = True
            self._engine.post(lambda: self._to_stream(SpeechStream.end))

    def cancel(self) -> None:
        """See ``Session.cancel``."""
        self.cancelled = True
        self._ended = True
        self._engine.post(lambda: None)

    def consumed(self, chunks: int = 1) -> None:
        """See ``Session.consumed``."""

        def take() -> None:
            self.outstanding -= chunks

        self._engine.post(take)

    def _to_stream(self, act: Callable[[SpeechStream], None]) -> None:
        if not self.stream.finished:
            act(self.stream)


class LocalEngine:
    """See ``tts_spec.engine.port.Engine``."""

    def __init__(self, bundle: Bundle, frontend: Frontend, options: EngineOptions | None = None) -> None:
        self.options = options or EngineOptions()
        self._bundle = bundle
        self._frontend = frontend
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._slots = threading.BoundedSemaphore(self.options.max_sessions)
        self._sessions: deque[LocalSession] = deque()
        self._totals = dict.fromkeys(("rounds_total", "tokens_total", "drafted_total", "accepted_total"), 0.0)
        self._closing = False
        manifest = bundle.manifest
        voices = tuple(VoiceInfo(v.name, v.language, v.gender, v.description) for v in manifest.voices)
        self._info = EngineInfo(
            bundle.codec.sample_rate, voices, ("none", *manifest.drafters), manifest.default_drafter
        )
        self._thread = threading.Thread(target=self._run, name="tts-engine", daemon=True)
        self._thread.start()

    @property
    def info(self) -> EngineInfo:
        """See ``Engine.info``."""
        return self._info

    @property
    def active(self) -> int:
        """See ``Engine.active``."""
        return len(self._sessions)

    @property
    def ready(self) -> bool:
        """See ``Engine.ready``."""
        return self._thread.is_alive() and not self._closing

    def metrics(self) -> Mapping[str, float]:
        """See ``Engine.metrics``. The totals are those of the sessions that are over."""
        return {"sessions_active": self.active, **self._totals}

    def open(self, options: SpeakOptions, listener: Listener) -> LocalSession:
        """See ``Engine.open``."""
        plan(self._bundle.manifest, options)  # raises for bad options, in the caller's thread
        if self._closing or not self._slots.acquire(blocking=False):
            raise SpeechError(
                "overloaded", f"all {self.options.max_sessions} sessions are taken; try again later", None
            )
        session = LocalSession(self, options, listener)
        self.post(lambda: self._start(session))
        return session

    def close(self) -> None:
        """See ``Engine.close``."""
        self._closing = True
        self.post(lambda: None)
        self._thread.join()

    def post(self, command: Callable[[], None]) -> None:
        """Run ``command`` on the engine's thread before its next round."""
        self._inbox.put(command)

    def _start(self, session: LocalSession) -> None:
        session.stream = SpeechStream(self._bundle, self._frontend, plan(self._bundle.manifest, session.options))
        self._sessions.append(session)

    def _run(self) -> None:
        torch.set_grad_enabled(False)
        try:
            while not self._closing:
                self._drain(wait=not any(self._runnable(session) for session in self._sessions))
                for _ in range(len(self._sessions)):
                    session = self._sessions.popleft()
                    if self._turn(session):
                        self._sessions.append(session)
                    else:
                        self._count(session)
                        self._slots.release()
                    self._drain(wait=False)
        finally:
            self._sessions.clear()

    def _count(self, session: LocalSession) -> None:
        stats = session.stream.stats()
        self._totals["rounds_total"] += stats.target_passes
        self._totals["tokens_total"] += stats.tokens
        self._totals["drafted_total"] += stats.drafted
        self._totals["accepted_total"] += stats.accepted

    def _drain(self, *, wait: bool) -> None:
        try:
            self._inbox.get(block=wait)()
            while True:
                self._inbox.get(block=False)()
        except queue.Empty:
            pass

    def _runnable(self, session: LocalSession) -> bool:
        return session.cancelled or (session.outstanding < self.options.max_outstanding and session.stream.ready)

    def _turn(self, session: LocalSession) -> bool:
        """One round of ``session``; False when it is over and its slot is free."""
        if session.cancelled:
            return False
        if not self._runnable(session):
            return True
        try:
            chunk = session.stream.step()
            session.read_chars = session.stream.read_chars
            if chunk is not None and not session.cancelled:
                session.outstanding += 1
                session.listener(chunk)
            return not session.stream.finished
        except Exception as error:
            log.exception("a session failed")
            session.listener(SpeechError("internal", f"the engine failed on this session: {error}", None))
            return False
