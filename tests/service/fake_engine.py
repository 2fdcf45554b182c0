"""An engine without torch: one thread turns words into sine frames, under the same border as the real one.

Every session sounds at its own pitch (``pitch(seed)``), so a test can hear whose audio it got. Back-pressure, flush,
end, cancel, warnings and refusals behave as ``tts_spec/engine/port.py`` says. ``hold`` stops the thread as a long model
pass would.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tts_spec.engine.port import EngineInfo, Listener
from tts_spec.types import Chunk, SpeakOptions, SpeechError, SpeechStats, SpeechWarning, VoiceInfo, Word, WordOnset

RATE = 24_000
FRAME = 600
MAX_OUTSTANDING = 8
MAX_CHUNK_FRAMES = 8
MAX_PENDING_CHARS = 20_000
INFO = EngineInfo(
    RATE,
    (VoiceInfo("ada", "en-US", "female", "Calm and clear"), VoiceInfo("ben", "en-GB", "male", "Warm")),
    ("none", "model"),
    "model",
)


def pitch(seed: int) -> float:
    """Hz of the sine that a session with this seed sounds at."""
    return 200.0 + 40.0 * (seed % 50)


@dataclass
class _Spoken:
    text: str
    start: int
    end: int
    frames: int


class FakeSession:
    def __init__(self, engine: FakeEngine, options: SpeakOptions, listener: Listener) -> None:
        self.options = options
        self.listener = listener
        self.chunks = 0
        self.frames = 0
        self.outstanding = 0
        self.most_outstanding = 0
        self.cancelled = False
        self.over = False
        self._engine = engine
        self._received = ""
        self._taken = 0  # characters already cut into words
        self._ended = False
        self._items: deque[_Spoken | SpeechWarning | None] = deque()  # None = a flush mark
        self._started = time.perf_counter()
        self._first_audio_ms: float | None = None

    def text(self, piece: str) -> None:
        with self._engine.changed:
            if self._ended:
                raise SpeechError("closed", "text after end")
            if len(self._received) - self._taken + len(piece) > MAX_PENDING_CHARS:
                raise SpeechError("too_long", f"more than {MAX_PENDING_CHARS} characters wait; allowed: less", "text")
            self._received += piece
            self._cut(last=False)
            self._engine.changed.notify_all()

    def flush(self) -> None:
        with self._engine.changed:
            self._cut(last=True)
            self._items.append(None)
            self._engine.changed.notify_all()

    def end(self) -> None:
        with self._engine.changed:
            self._cut(last=True)
            self._ended = True
            self._engine.changed.notify_all()

    def cancel(self) -> None:
        with self._engine.changed:
            self.cancelled = self.cancelled or not self.over
            self.over = True
            self._engine.changed.notify_all()

    def consumed(self, chunks: int = 1) -> None:
        with self._engine.changed:
            self.outstanding -= chunks
            self._engine.changed.notify_all()

    @property
    def plain(self) -> bool:
        return self.options.drafter == "none"

    def can_step(self) -> bool:
        return not self.over and self.outstanding < MAX_OUTSTANDING and bool(self._items or self._ended)

    def step(self) -> Chunk:
        """The next chunk: of one word, one flush mark, or the end."""
        warnings: list[SpeechWarning] = []
        while self._items and isinstance(warning := self._items[0], SpeechWarning):
            warnings.append(warning)
            self._items.popleft()
        words: tuple[Word, ...] = ()
        onsets: tuple[WordOnset, ...] = ()
        flushed = count = 0
        item = self._items[0] if self._items else None
        if isinstance(item, _Spoken):
            start = self.frames * FRAME / RATE
            if item.text:
                words = (Word(item.text, item.start, item.end, start, start + item.frames * FRAME / RATE),)
                onsets = (WordOnset(item.text, item.start, item.end, start),)
                item.text = ""
            count = min(item.frames, MAX_CHUNK_FRAMES, 2**self.chunks)
            item.frames -= count
            if not item.frames:
                self._items.popleft()
        elif self._items:
            self._items.popleft()
            flushed = 1
        pcm = self._sine(count)
        if count and self._first_audio_ms is None:
            self._first_audio_ms = (time.perf_counter() - self._started) * 1000
        stats = None
        # The end may come with the last audio or, as here for every other voice, after it.
        if self._ended and not self._items and (self.options.seed % 2 == 0 or not count):
            self.over = True
            stats = self._stats()
        self.chunks += 1
        self.outstanding += 1
        self.most_outstanding = max(self.most_outstanding, self.outstanding)
        accepted = tuple((self.frames + i) % 3 != 0 and not self.plain for i in range(4 * count))
        return Chunk(pcm, RATE, words, onsets, tuple(warnings), accepted, flushed, stats)

    def _cut(self, last: bool) -> None:
        pattern = r"\S+" if last else r"\S+(?=\s)"
        for match in re.finditer(pattern, self._received[self._taken :]):
            start, end = self._taken + match.start(), self._taken + match.end()
            text = match.group()
            if any(letter.isalnum() for letter in text):
                frames = max(1, round((6 + 2 * len(text)) / self.options.speed))
                self._items.append(_Spoken(text, start, end, frames))
            elif not text.isascii():
                self._items.append(SpeechWarning("not_spoken", f"{text} has no sound", start, end))
        consumed = list(re.finditer(pattern, self._received[self._taken :]))
        if consumed:
            self._taken += consumed[-1].end()

    def _sine(self, frames: int) -> np.ndarray:
        at = np.arange(self.frames * FRAME, (self.frames + frames) * FRAME, dtype=np.float64) / RATE
        self.frames += frames
        return (0.5 * np.sin(2 * np.pi * pitch(self.options.seed) * at)).astype(np.float32)

    def _stats(self) -> SpeechStats:
        tokens = 4 * self.frames
        return SpeechStats(
            audio_s=self.frames * FRAME / RATE,
            wall_s=time.perf_counter() - self._started,
            rounds_s=0.001 * tokens,
            first_audio_ms=self._first_audio_ms,
            tokens=tokens,
            target_passes=tokens if self.plain else tokens // 2,
            drafted=0 if self.plain else tokens,
            accepted=0 if self.plain else tokens // 2,
            tried_by_codebook=(self.frames,) * 4,
            accepted_by_codebook=(self.frames // 2,) * 4,
            drafter=self.options.drafter or INFO.default_drafter,
            gamma=4,
            seed=self.options.seed,
            token_hash=hashlib.sha256(f"{self.options.seed} {self._received}".encode()).hexdigest(),
        )


class FakeEngine:
    """Sessions in turn, one chunk each. ``frame_s``: what a frame costs; ``fail_after``: chunks until a session breaks."""

    def __init__(self, frame_s: float = 0.0, fail_after: int | None = None, ignore_outstanding: bool = False) -> None:
        self.changed = threading.Condition()
        self.sessions: list[FakeSession] = []
        self.refusal: SpeechError | None = None
        self.ready = True
        self._frame_s = frame_s
        self._fail_after = fail_after
        self._ignore_outstanding = ignore_outstanding
        self._go = threading.Event()
        self._go.set()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="fake engine", daemon=True)
        self._thread.start()

    @property
    def info(self) -> EngineInfo:
        return INFO

    @property
    def active(self) -> int:
        with self.changed:
            return sum(not session.over for session in self.sessions)

    def metrics(self) -> Mapping[str, float]:
        with self.changed:
            tokens = 4 * sum(session.frames for session in self.sessions)
            rounds = sum(4 * session.frames // (1 if session.plain else 2) for session in self.sessions)
        return {"sessions_active": self.active, "rounds_total": rounds, "tokens_total": tokens, "tau": 2.0}

    def open(self, options: SpeakOptions, listener: Listener) -> FakeSession:
        INFO.check(options)
        if self.refusal is not None:
            raise self.refusal
        session = FakeSession(self, options, listener)
        with self.changed:
            self.sessions.append(session)
        return session

    def close(self) -> None:
        with self.changed:
            self._closed = True
            for session in self.sessions:
                session.over = True
            self.changed.notify_all()
        self._go.set()
        self._thread.join()

    # For tests

    def hold(self) -> None:
        """Stand still, as in a pass that never ends, until ``release``."""
        self._go.clear()

    def release(self) -> None:
        self._go.set()

    def wait_for(self, condition: Callable[[], bool], timeout: float = 120.0) -> bool:
        """Wait until the condition, checked at every change of any session, is true."""
        with self.changed:
            return self.changed.wait_for(condition, timeout)

    def _run(self) -> None:
        turn = 0
        while True:
            self._go.wait()
            with self.changed:
                self.changed.wait_for(lambda: self._closed or any(self._can_step(each) for each in self.sessions))
                if self._closed:
                    return
                ready = [each for each in self.sessions if self._can_step(each)]
                session = ready[turn % len(ready)]
                turn += 1
                chunk = session.step()
                broken = session.chunks == self._fail_after
                session.over = session.over or broken
                self.changed.notify_all()
            if self._frame_s:
                time.sleep(self._frame_s * len(chunk.pcm) / FRAME)
            self._go.wait()
            if not session.cancelled:
                session.listener(SpeechError("model_broke", "the model broke") if broken else chunk)

    def _can_step(self, session: FakeSession) -> bool:
        return session.can_step() or (self._ignore_outstanding and not session.over and bool(session._items))
