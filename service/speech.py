"""One stream of speech as every protocol has it: text goes in, pieces of encoded audio come out, on the event loop.

Joins an engine session to an encoder. Encoding that takes time is done on a thread, one piece after another, so that the
loop stays free and the order stays. Knows no socket, no request and no message.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace

from tts_spec.audio.encoder import Encoder
from tts_spec.audio.formats import AudioFormat
from tts_spec.engine.port import Engine, Event
from tts_spec.types import Chunk, SpeakOptions, SpeechError, SpeechStats, SpeechWarning, Word, WordOnset

VOICE_SPEEDS = (0.7, 1.4)  # what the voice can do itself (SpeakOptions)


def split_speed(speed: float) -> tuple[float, float]:
    """A speed as the voice's own speed and the tempo that its audio is brought to."""
    own = min(max(speed, VOICE_SPEEDS[0]), VOICE_SPEEDS[1])
    return own, speed / own


@dataclass(frozen=True, slots=True)
class Piece:
    """What a chunk of the engine became. Times are seconds of the stream's audio as it went into the encoder.

    ``audio`` may be empty: a codec that works in frames waits for more.
    """

    audio: bytes
    start_s: float
    end_s: float
    words: tuple[Word, ...] = ()
    onsets: tuple[WordOnset, ...] = ()
    warnings: tuple[SpeechWarning, ...] = ()
    accepted: tuple[bool, ...] = ()
    flushed: int = 0
    stats: SpeechStats | None = None  # the stream is over

    @property
    def seconds(self) -> float:
        """Of audio that went into the encoder."""
        return self.end_s - self.start_s


class Speech:
    """One stream. ``listener`` gets pieces in order, then, at an error, what ended it; nothing after ``cancel``."""

    def __init__(
        self,
        engine: Engine,
        options: SpeakOptions,
        audio_format: AudioFormat,
        executor: Executor,
        listener: Callable[[Piece | SpeechError], None],
        tempo: float = 1.0,
        written: Callable[[float], object] = lambda _: None,
    ) -> None:
        """``tempo``: 2 = twice as fast as the voice speaks. Raises ``SpeechError`` as ``Engine.open`` does.

        ``written`` is told, for each piece taken by the reader, the seconds since the engine made it.
        """
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._executor = executor
        self._format = audio_format
        self._source_rate = engine.info.sample_rate
        self._encoder: Encoder | None = None  # made with the first samples: that, too, takes milliseconds
        self._tempo = tempo
        self._is_slow = audio_format.is_compressed or tempo != 1.0
        self._events: deque[Event] = deque()  # those that wait for the encoder
        self._encoding = False
        self._written = written
        self._made_at: deque[float | None] = deque()  # of the pieces given and not yet taken
        self._heard_s = 0.0
        self._over = False
        self._session = engine.open(options, self._heard)

    def text(self, piece: str) -> None:
        """See ``Session.text``."""
        self._session.text(piece)

    def flush(self) -> None:
        """See ``Session.flush``."""
        self._session.flush()

    def end(self) -> None:
        """See ``Session.end``."""
        self._session.end()

    def cancel(self) -> None:
        """See ``Session.cancel``."""
        self._over = True
        self._events.clear()
        self._session.cancel()

    def consumed(self) -> None:
        """The reader has taken one piece."""
        if self._made_at and (made_at := self._made_at.popleft()) is not None:
            self._written(time.monotonic() - made_at)
        self._session.consumed()

    def _heard(self, event: Event) -> None:
        """The engine's listener; runs on the engine's thread."""
        with suppress(RuntimeError):  # the loop has ended, and the client with it
            self._loop.call_soon_threadsafe(self._take, event)

    def _take(self, event: Event) -> None:
        if self._over:
            return
        if self._encoding:
            self._events.append(event)
        elif isinstance(event, SpeechError):
            self._over = True
            self._listener(event)
        elif self._is_slow:
            self._encoding = True
            work = self._loop.run_in_executor(self._executor, self._encode, event)
            work.add_done_callback(lambda done: self._encoded(event, done))
        else:
            self._give(event, self._encode(event))

    def _encode(self, chunk: Chunk) -> bytes:
        audio = b""
        if len(chunk.pcm):
            if self._encoder is None:
                self._encoder = Encoder(self._format, self._source_rate, self._tempo)
            audio = self._encoder.encode(chunk.pcm)
        if chunk.stats is not None and self._encoder is not None:
            audio += self._encoder.finish()
        return audio

    def _encoded(self, chunk: Chunk, done: asyncio.Future[bytes]) -> None:
        self._encoding = False
        if self._over or done.cancelled():
            return
        if error := done.exception():
            self.cancel()
            self._listener(SpeechError("internal", f"the encoder failed: {error}"))
            return
        self._give(chunk, done.result())
        while self._events and not self._encoding:
            self._take(self._events.popleft())

    def _give(self, chunk: Chunk, audio: bytes) -> None:
        start_s = self._heard_s
        self._heard_s += len(chunk.pcm) / chunk.sample_rate / self._tempo
        self._over = chunk.stats is not None
        self._made_at.append(chunk.made_at)
        words, onsets = chunk.words, chunk.onsets
        if self._tempo != 1.0:
            words = tuple(replace(w, start_s=w.start_s / self._tempo, end_s=w.end_s / self._tempo) for w in words)
            onsets = tuple(replace(onset, start_s=onset.start_s / self._tempo) for onset in onsets)
        self._listener(
            Piece(
                audio=audio,
                start_s=start_s,
                end_s=self._heard_s,
                words=words,
                onsets=onsets,
                warnings=chunk.warnings,
                accepted=chunk.accepted,
                flushed=chunk.flushed,
                stats=chunk.stats,
            )
        )
