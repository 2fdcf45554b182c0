"""A session of the engine's thread, as its caller and as the thread see it. Knows streams; knows no socket and no other session."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from tts_spec.engine.port import Listener
from tts_spec.engine.scheduler import Standing
from tts_spec.engine.stream import SpeechStream
from tts_spec.types import Chunk, SpeakOptions, SpeechError


class LocalSession:
    """See ``tts_spec.engine.port.Session``. Fields without underscore belong to the engine's thread."""

    def __init__(
        self,
        post: Callable[[Callable[[], None]], None],
        options: SpeakOptions,
        listener: Listener,
        key: int,
        max_chars: int,
        gone: Callable[[], None] = lambda: None,
    ) -> None:
        """``gone`` is called on the engine's thread when nothing is held for the session any more."""
        self._post = post  # run something on the engine's thread
        self._max_chars = max_chars
        self.key = key
        self.options = options
        self.listener = listener
        self.gone = gone
        self.stream: SpeechStream | None = None  # None before it is admitted for the first time
        self.outstanding = 0
        self.cancelled = False
        self.broken: Exception | None = None  # what its text or flush ran into
        self.read_chars = 0
        self.queued_at = 0.0
        self.admitted_at: float | None = None  # the first time
        self.asked_at: float | None = None  # since when there is something to say and nothing was heard
        self.heard_at: float | None = None  # when the first audio of what plays now left
        self.audio_s = 0.0  # given to the listener since then
        self.dry_at: float | None = None  # since when it waits for text
        self.held_at: float | None = None  # since when it waits for the rest of a clause
        self.paused_at: float | None = None  # since when its reader takes nothing
        self._backlog: list[Callable[[SpeechStream], None]] = []  # what came before there was a stream
        self._ended = False
        self._received = 0

    def slack(self, now: float) -> float:
        """Audio ahead of a playback that began with the first chunk; before that, the time left of the first audio's budget."""
        if self.heard_at is not None:
            return self.audio_s - (now - self.heard_at)
        return self.options.budget.first_audio_ms / 1000 - (0.0 if self.asked_at is None else now - self.asked_at)

    def standing(self, now: float) -> Standing:
        """For the scheduler."""
        gap_s = self.options.budget.max_gap_ms / 1000
        return Standing(self.key, self.heard_at is not None, self.slack(now), self.options.live, gap_s)

    def able(self, now: float, max_outstanding: int) -> bool:
        """Whether it could do a round; keeps the times by which it is judged when it cannot."""
        assert self.stream is not None
        paused, dry = self.outstanding >= max_outstanding, not self.stream.ready
        self.paused_at = (now if self.paused_at is None else self.paused_at) if paused else None
        self.dry_at = (now if self.dry_at is None else self.dry_at) if dry else None
        self.held_at = (now if self.held_at is None else self.held_at) if dry and self.stream.holds else None
        if paused or dry:
            self.asked_at = None
            return False
        if self.asked_at is None:
            self.asked_at = now
            if self.heard_at is not None and self.slack(now) < 0:  # its playback stood still, and not by our fault
                self.heard_at, self.audio_s = None, 0.0
        return True

    def hurry(self, now: float) -> None:
        """Speak what is there of an open clause when it has been held back long enough: whole words, at length all of it."""
        wait_s = self.options.max_wait_ms / 1000
        if self.held_at is not None and self.stream is not None and now >= self.held_at + wait_s:
            self._on_stream(lambda stream: stream.hurry(whole=now >= self.held_at + 2 * wait_s))  # type: ignore[operator]

    def hurry_at(self, now: float) -> float | None:
        """When ``hurry`` will have something to do."""
        if self.held_at is None:
            return None
        wait_s = self.options.max_wait_ms / 1000
        return self.held_at + (wait_s if now < self.held_at + wait_s else 2 * wait_s)

    def start(self, stream: SpeechStream) -> None:
        """Admitted: what came so far goes to ``stream``."""
        self.stream = stream
        backlog, self._backlog = self._backlog, []
        for act in backlog:
            self._on_stream(act)

    def give(self, chunk: Chunk, now: float) -> None:
        """Hand ``chunk`` to the listener."""
        if len(chunk.pcm):
            self.audio_s += len(chunk.pcm) / chunk.sample_rate
            if self.heard_at is None:
                self.heard_at = now
        self.outstanding += 1
        self.listener(replace(chunk, made_at=time.monotonic()))

    def text(self, piece: str) -> None:
        """See ``Session.text``."""
        if self._ended:
            raise SpeechError("closed", "text after end: the session takes no more text", "text")
        if self._received + len(piece) - self.read_chars > self._max_chars:
            raise SpeechError("too_long", f"more than {self._max_chars} characters are waiting to be spoken", "text")
        self._received += len(piece)
        self._post(lambda: self._on_stream(lambda stream: stream.text(piece)))

    def flush(self) -> None:
        """See ``Session.flush``."""
        if self._ended:
            raise SpeechError("closed", "flush after end: the session takes no more text", None)
        self._post(lambda: self._on_stream(lambda stream: stream.flush()))

    def end(self) -> None:
        """See ``Session.end``."""
        if not self._ended:
            self._ended = True
            self._post(lambda: self._on_stream(lambda stream: stream.end()))

    def cancel(self) -> None:
        """See ``Session.cancel``."""
        self.cancelled = True
        self._ended = True
        self._post(lambda: None)

    def consumed(self, chunks: int = 1) -> None:
        """See ``Session.consumed``."""

        def take() -> None:
            self.outstanding -= chunks

        self._post(take)

    def _on_stream(self, act: Callable[[SpeechStream], None]) -> None:
        if self.stream is None:
            self._backlog.append(act)
        elif not (self.cancelled or self.stream.finished):
            try:
                act(self.stream)
            except Exception as error:
                self.broken = error
