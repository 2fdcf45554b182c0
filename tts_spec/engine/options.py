"""Limits of an engine, checked when they are made. Knows no torch, no thread and no session."""

from __future__ import annotations

from dataclasses import dataclass, field

from tts_spec.engine.scheduler import SchedulerOptions


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Limits of an engine. Raises ValueError naming the field, the value and what is allowed."""

    max_sessions: int = 16  # sessions that hold KV slots at once: this bounds the memory of the caches
    max_queued: int = 16  # sessions beside those: waiting to be admitted, or idle without a slot
    queue_wait_s: float = 2.0  # a session that could not be admitted for so long is refused
    idle_s: float = 10.0  # a session without text keeps its slot so long; then its KV is set aside until text comes
    stall_s: float = 60.0  # a session whose reader takes nothing for so long is ended
    max_outstanding: int = 32  # chunks given and not yet reported consumed; a session pauses there
    max_pending_chars: int = 100_000  # text of one session not yet spoken
    scheduler: SchedulerOptions = field(default_factory=SchedulerOptions)

    def __post_init__(self) -> None:
        for name, least in (("max_sessions", 1), ("max_queued", 0), ("max_outstanding", 1), ("max_pending_chars", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} is {value!r}; allowed: a whole number from {least}")
        for name in ("queue_wait_s", "idle_s", "stall_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)!r}; allowed: seconds from 0")
