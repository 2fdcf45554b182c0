"""The engine on a thread of this process: live sessions share the passes of every round.

Callers never wait and never take a lock: they put commands into a queue that the thread drains between its turns (``Floor``). Knows
bundles and threads; knows no socket.
"""

from __future__ import annotations

import functools
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping

import torch

from models.bundle import Bundle
from tts_spec.engine.floor import Floor
from tts_spec.engine.governor import Governor
from tts_spec.engine.local_session import LocalSession
from tts_spec.engine.options import EngineOptions
from tts_spec.engine.plan import AUTO, drafter_choices, plan
from tts_spec.engine.port import EngineInfo, Listener
from tts_spec.engine.stream import SpeechStream
from tts_spec.engine.together import SharedNetworks
from tts_spec.text.frontend import Frontend
from tts_spec.types import SpeakOptions, VoiceInfo

log = logging.getLogger(__name__)


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
        manifest, networks = bundle.manifest, SharedNetworks(bundle, self.options.max_sessions)

        def make_stream(asked: SpeakOptions) -> SpeechStream:
            return SpeechStream(bundle, frontend, plan(manifest, asked), networks)

        frame_s = bundle.codec.frame_samples / bundle.codec.sample_rate
        self._floor = Floor(self.options, Governor(manifest, 1 / frame_s), make_stream, frame_s, clock)
        self._check = functools.partial(plan, manifest)
        self._cache_bytes = networks.nbytes
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._room = threading.BoundedSemaphore(self.options.max_sessions + self.options.max_queued)
        self._keys = itertools.count()
        self._closing = False
        self._turn_began: float | None = None
        voices = tuple(VoiceInfo(v.name, v.language, v.gender, v.description) for v in manifest.voices)
        self._info = EngineInfo(bundle.codec.sample_rate, voices, drafter_choices(manifest), AUTO)
        self._thread = threading.Thread(target=self._run, name="tts-engine", daemon=True)
        self._thread.start()

    @property
    def info(self) -> EngineInfo:
        """See ``Engine.info``."""
        return self._info

    @property
    def active(self) -> int:
        """See ``Engine.active``."""
        return self._floor.active

    @property
    def ready(self) -> bool:
        """See ``Engine.ready``."""
        return self._thread.is_alive() and not self._closing

    @property
    def stuck_s(self) -> float:
        """How long the turn has taken that is not over yet."""
        began = self._turn_began
        return 0.0 if began is None else time.monotonic() - began

    def metrics(self) -> Mapping[str, float]:
        """See ``Engine.metrics``."""
        return {**self._floor.metrics(), "kv_cache_bytes": self._cache_bytes}

    def open(self, options: SpeakOptions, listener: Listener, gone: Callable[[], None] | None = None) -> LocalSession:
        """See ``Engine.open``. ``gone`` is called on the engine's thread when the session holds nothing any more."""
        self._check(options)  # raises for bad options, in the caller's thread
        if not self.ready or not self._room.acquire(blocking=False):
            self.post(self._floor.count_refusal)
            raise self._floor.overloaded(self.options.max_queued)

        def free() -> None:
            self._room.release()
            if gone is not None:
                gone()

        session = LocalSession(self.post, options, listener, next(self._keys), self.options.max_pending_chars, free)
        self.post(lambda: self._floor.enter(session))
        return session

    def close(self) -> None:
        """See ``Engine.close``."""
        self._closing = True
        self.post(lambda: None)
        self._thread.join()

    def post(self, command: Callable[[], None]) -> None:
        """Run ``command`` on the engine's thread before its next round."""
        self._inbox.put(command)

    def _run(self) -> None:
        torch.set_grad_enabled(False)
        why: Exception | None = None
        try:
            while not self._closing:
                self._turn_began = time.monotonic()
                wait_s = self._floor.turn()
                self._turn_began = None
                self._drain(wait_s)
        except Exception as error:
            log.exception("the engine stopped")
            why = error
        finally:
            for session in self._floor.sessions:
                if why is None:
                    self._floor.end(session)
                else:
                    self._floor.fail(session, why)

    def _drain(self, wait_s: float | None) -> None:
        """Run the commands that are there; if there are none, wait for one up to ``wait_s`` (None: without end)."""
        try:
            if wait_s != 0:
                self._inbox.get(timeout=wait_s)()
            while True:
                self._inbox.get(block=False)()
        except queue.Empty:
            pass
