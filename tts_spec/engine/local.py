"""The engine on a thread of this process: live sessions share the passes of every round.

Callers never wait and never take a lock: they put commands into a queue that the thread drains between rounds. Each round the scheduler
says who takes part and the governor how many drafts; sessions wait here for text or for a slow reader at no cost. Knows streams and
threads; knows no socket.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from models.bundle import Bundle
from tts_spec.engine.governor import Governor
from tts_spec.engine.local_session import LocalSession
from tts_spec.engine.plan import plan
from tts_spec.engine.port import EngineInfo, Listener
from tts_spec.engine.scheduler import SchedulerOptions, Standing, next_batch
from tts_spec.engine.stream import SpeechStream
from tts_spec.engine.together import SharedNetworks, together
from tts_spec.text.frontend import Frontend
from tts_spec.types import SpeakOptions, SpeechError, VoiceInfo

log = logging.getLogger(__name__)

FIRST_AUDIO_S = 0.15  # budget of a session's first audio


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Limits of the engine."""

    max_sessions: int = 16
    max_outstanding: int = 32  # chunks given and not yet reported consumed; a session pauses there
    max_pending_chars: int = 100_000  # text of one session not yet spoken
    scheduler: SchedulerOptions = field(default_factory=SchedulerOptions)

    def __post_init__(self) -> None:
        for name in ("max_sessions", "max_outstanding", "max_pending_chars"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; allowed: a whole number from 1")


class LocalEngine:
    """See ``tts_spec.engine.port.Engine``."""

    def __init__(
        self,
        bundle: Bundle,
        frontend: Frontend,
        options: EngineOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options or EngineOptions()
        self._bundle = bundle
        self._frontend = frontend
        self._clock = clock
        self._networks = SharedNetworks(bundle, self.options.max_sessions)
        self._governor = Governor(bundle.manifest)
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._free = threading.BoundedSemaphore(self.options.max_sessions)
        self._sessions: dict[int, LocalSession] = {}
        self._keys = itertools.count()
        self._closing = False
        manifest = bundle.manifest
        voices = tuple(VoiceInfo(v.name, v.language, v.gender, v.description) for v in manifest.voices)
        self._info = EngineInfo(
            bundle.codec.sample_rate, voices, ("none", *manifest.drafters), manifest.default_drafter
        )
        log.info("KV caches of %d sessions: %.1f MB", self.options.max_sessions, self._networks.nbytes / 1e6)
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
        """See ``Engine.metrics``."""
        return {"sessions_active": self.active, **self._governor.metrics()}

    def open(self, options: SpeakOptions, listener: Listener) -> LocalSession:
        """See ``Engine.open``."""
        plan(self._bundle.manifest, options)  # raises for bad options, in the caller's thread
        if self._closing or not self._free.acquire(blocking=False):
            raise SpeechError(
                "overloaded", f"all {self.options.max_sessions} sessions are taken; try again later", None
            )
        session = LocalSession(self.post, options, listener, next(self._keys), self.options.max_pending_chars)
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
        try:
            session.stream = SpeechStream(
                self._bundle, self._frontend, plan(self._bundle.manifest, session.options), self._networks
            )
        except Exception as error:
            session.cancelled = True  # what the caller still sends goes nowhere
            self._free.release()
            self._tell(session, error)
            return
        self._sessions[session.key] = session

    def _run(self) -> None:
        torch.set_grad_enabled(False)
        try:
            while not self._closing:
                for session in list(self._sessions.values()):
                    if session.cancelled:
                        self._end(session)
                    elif session.broken is not None:
                        self._fail(session, session.broken)
                batch, wait_s = self._choose()
                if batch:
                    self._round(batch)
                self._drain(wait_s)
        finally:
            for session in list(self._sessions.values()):
                self._end(session)

    def _drain(self, wait_s: float | None) -> None:
        """Run the commands that are there; if there are none, wait for one up to ``wait_s`` (None: without end)."""
        try:
            if wait_s != 0:
                self._inbox.get(timeout=wait_s)()
            while True:
                self._inbox.get(block=False)()
        except queue.Empty:
            pass

    def _choose(self) -> tuple[list[LocalSession], float | None]:
        """The sessions of the next round, and how long to wait for commands after it."""
        now = self._clock()
        able = []
        for session in self._sessions.values():
            if session.stream.ready and session.outstanding < self.options.max_outstanding:
                if session.asked_at is None:
                    session.asked_at = now
                able.append(session)
        if not able:
            return [], None
        # Alone, a session may run ahead as far as its reader takes it.
        standings = [
            Standing(session.key, session.heard_at is not None, session.slack(now, FIRST_AUDIO_S), live=len(able) > 1)
            for session in able
        ]
        batch = [self._sessions[key] for key in next_batch(standings, self.options.scheduler)]
        if batch:
            return batch, 0
        rest = min(standing.slack_s for standing in standings) - self.options.scheduler.look_ahead_s
        return [], max(rest, 0.001)

    def _round(self, batch: list[LocalSession]) -> None:
        """One step of every session of ``batch``."""
        for session in batch:
            session.stream.gamma = self._governor.gamma(session.options, session.stream.plan, len(batch))
        try:
            outcomes = together([session.stream.step for session in batch], self._governor.observe_pass)
        except Exception as error:
            for session in batch:
                self._fail(session, error)
            return
        now = self._clock()
        self._governor.observe_round([session.stream for session in batch])
        for session, outcome in zip(batch, outcomes, strict=True):
            if outcome.error is not None:
                self._fail(session, outcome.error)
                continue
            session.read_chars = session.stream.read_chars
            if outcome.value is not None and not session.cancelled:
                try:
                    session.give(outcome.value, now)
                except Exception as error:  # the listener's own, such as an event loop that is closed: the others go on
                    self._fail(session, error)
                    continue
            if session.stream.finished:
                self._end(session)

    def _fail(self, session: LocalSession, error: Exception) -> None:
        self._end(session)
        self._tell(session, error)

    def _tell(self, session: LocalSession, error: Exception) -> None:
        """Report the error that ended ``session``, which is free by now."""
        log.error("a session failed", exc_info=error)
        try:
            session.listener(SpeechError("internal", f"the engine failed on this session: {error}", None))
        except Exception:
            log.exception("a session's listener failed")

    def _end(self, session: LocalSession) -> None:
        """Free everything ``session`` holds."""
        del self._sessions[session.key]
        session.stream.close()
        self._free.release()
