"""A session of the engine's thread, as its caller and as the thread see it. Knows streams; knows no socket and no other session."""

from __future__ import annotations

from collections.abc import Callable

from tts_spec.engine.port import Listener
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
    ) -> None:
        self._post = post  # run something on the engine's thread
        self._max_chars = max_chars
        self.key = key
        self.options = options
        self.listener = listener
        self.stream: SpeechStream  # made on the engine's thread before any other command
        self.outstanding = 0
        self.cancelled = False
        self.broken: Exception | None = None  # what its text or flush ran into
        self._ended = False
        self._received = 0
        self.read_chars = 0
        self.asked_at: float | None = None  # when there was first something to say
        self.heard_at: float | None = None  # when its first audio left
        self.audio_s = 0.0  # given to the listener

    def slack(self, now: float, first_audio_s: float) -> float:
        """Audio ahead of a playback that began with the first chunk; before that, the time left of ``first_audio_s``."""
        if self.heard_at is not None:
            return self.audio_s - (now - self.heard_at)
        return first_audio_s if self.asked_at is None else first_audio_s - (now - self.asked_at)

    def give(self, chunk: Chunk, now: float) -> None:
        """Hand ``chunk`` to the listener."""
        if len(chunk.pcm):
            self.audio_s += len(chunk.pcm) / chunk.sample_rate
            if self.heard_at is None:
                self.heard_at = now
        self.outstanding += 1
        self.listener(chunk)

    def text(self, piece: str) -> None:
        """See ``Session.text``."""
        if self._ended:
            raise SpeechError("closed", "text after end: the session takes no more text", "text")
        if self._received + len(piece) - self.read_chars > self._max_chars:
            raise SpeechError("too_long", f"more than {self._max_chars} characters are waiting to be spoken", "text")
        self._received += len(piece)
        self._post(lambda: self._to_stream(lambda stream: stream.text(piece)))

    def flush(self) -> None:
        """See ``Session.flush``."""
        if self._ended:
            raise SpeechError("closed", "flush after end: the session takes no more text", None)
        self._post(lambda: self._to_stream(SpeechStream.flush))

    def end(self) -> None:
        """See ``Session.end``."""
        if not self._ended:
            self._ended = True
            self._post(lambda: self._to_stream(SpeechStream.end))

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

    def _to_stream(self, act: Callable[[SpeechStream], None]) -> None:
        if self.cancelled or self.stream.finished:
            return
        try:
            act(self.stream)
        except Exception as error:
            self.broken = error
