"""The border between the engine and whoever feeds it: a session takes text and gives events.

Knows no socket and no torch. The service, the Python API and the tests all speak to an engine through these two protocols;
the implementations do their work on a thread or in a process of their own and never block a caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tts_spec.types import Chunk, SpeakOptions, SpeechError, VoiceInfo
from tts_spec.voice_mix import voice_weights

# What a session reports: chunks, the last of which carries stats (the stream is over), or the error that ended it.
Event = Chunk | SpeechError
Listener = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What the engine can do, fixed at load."""

    sample_rate: int
    voices: tuple[VoiceInfo, ...]
    drafters: tuple[str, ...]
    default_drafter: str

    def check(self, options: SpeakOptions) -> None:
        """Raises SpeechError ``unknown_voice`` or ``invalid_value`` for what this engine does not have."""
        check_choices(options, [voice.name for voice in self.voices], self.drafters)


def check_choices(options: SpeakOptions, voices: Sequence[str], drafters: Sequence[str]) -> None:
    """Raises SpeechError unless voice and drafter of ``options`` are among these, or left open."""
    if options.voice is not None:
        voice_weights(options.voice, voices)
    if options.drafter is not None and options.drafter not in drafters:
        has = ", ".join(drafters)
        raise SpeechError("invalid_value", f"drafter is {options.drafter!r}; this bundle has: {has}", "drafter")


class Session(Protocol):
    """One utterance stream. All methods return at once and may be called from any thread."""

    def text(self, piece: str) -> None:
        """Append text. Raises SpeechError ``too_long`` when the pending text passes the limit, ``closed`` after ``end``."""

    def flush(self) -> None:
        """Speak everything received so far without waiting for more; a later chunk says ``flushed``."""

    def end(self) -> None:
        """No more text: speak the rest, then the last chunk carries stats."""

    def cancel(self) -> None:
        """Stop within one round and free everything; no event follows. Idempotent, harmless after the end."""

    def consumed(self, chunks: int = 1) -> None:
        """The reader has taken this many chunks; generation pauses while too many are outstanding."""


class Engine(Protocol):
    """Runs sessions. ``listener`` is called on a thread of the engine and must not block."""

    @property
    def info(self) -> EngineInfo: ...

    def open(self, options: SpeakOptions, listener: Listener) -> Session:
        """Start a session. Raises SpeechError ``unknown_voice``, ``invalid_value`` or, when no more may even wait, ``overloaded``.

        One that may wait but is not admitted in time hears ``overloaded`` as its only event. Both carry ``retry_after_ms``.
        """

    @property
    def active(self) -> int:
        """Sessions that hold resources now."""

    @property
    def ready(self) -> bool:
        """Warm and running: a session opened now waits for no loading, compiling or restart."""

    def metrics(self) -> Mapping[str, float]:
        """Numbers for whoever watches, from any thread and at once.

        Names are snake case with their unit; those that only grow end in ``_total``. Expected of any engine: ``sessions_active``,
        ``rounds_total``, ``tokens_total``, ``drafted_total`` and ``accepted_total``. An engine that has them also gives
        ``sessions_queued``, ``sessions_parked``, ``sessions_refused_total``, ``load``, ``batch_size``, ``tau``, ``acceptance``, ``gamma``,
        ``slack_min_seconds``, ``tokens_per_second``, ``kv_cache_bytes``, ``resident_memory_bytes``, ``restarts_total``.
        """

    def close(self) -> None:
        """Cancel all sessions and stop."""
