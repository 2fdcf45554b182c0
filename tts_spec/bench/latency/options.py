"""What to measure, checked when it is made. Knows no server."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tts_spec.types import SpeechError


@dataclass(frozen=True, slots=True)
class LatencyOptions:
    """A measurement. Every bad value raises ``SpeechError`` naming the field, the value and what is allowed."""

    sessions: int = 1  # live listeners of the closed loop
    rate: float | None = None  # open loop: listeners a second, at random; sessions does not count then
    find_capacity: bool = False  # search the largest number of sessions that holds, up to max_sessions
    max_sessions: int = 32
    seconds: float = 20.0  # of each load, after the warm-up
    warmup_s: float = 3.0
    utterances: int | None = None  # end a load after this many
    budget_ms: float = 250.0  # first audio p95 that counts as holding
    texts: tuple[str, ...] = ()
    words_per_s: float | None = None  # text comes by the word; None = whole
    leave_share: float = 0.0  # of the utterances: cancelled or disconnected in the middle
    cancels: int = 20  # measured one by one after the load, under the same load of sessions; 0 = none
    settings: tuple[str, ...] = ("default",)  # drafter values; default = nothing sent
    voice: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        _number("sessions", self.sessions, 1, 10_000, whole=True)
        _number("rate", self.rate, 0.001, 10_000)
        _number("max_sessions", self.max_sessions, 1, 10_000, whole=True)
        _number("seconds", self.seconds, 0.1, 86_400)
        _number("warmup_s", self.warmup_s, 0, 3_600)
        _number("utterances", self.utterances, 1, 1_000_000, whole=True)
        _number("budget_ms", self.budget_ms, 1, 60_000)
        _number("words_per_s", self.words_per_s, 0.1, 10_000)
        _number("leave_share", self.leave_share, 0, 1)
        _number("cancels", self.cancels, 0, 100_000, whole=True)
        _number("seed", self.seed, 0, 2**62, whole=True)
        if not self.texts or not all(text.strip() for text in self.texts):
            raise SpeechError(
                "invalid_value", "texts has nothing to say; allowed: at least one line, none blank", "texts"
            )
        if self.find_capacity and self.rate is not None:
            raise SpeechError(
                "invalid_value",
                f"rate is {self.rate:g}; allowed with find_capacity: none, it is about sessions",
                "rate",
            )
        if not self.settings or len(set(self.settings)) < len(self.settings):
            raise SpeechError(
                "invalid_value", f"settings is {self.settings!r}; allowed: different drafters", "settings"
            )


def _number(name: str, value: float | None, low: float, high: float, *, whole: bool = False) -> None:
    if value is None:
        return
    good = math.isfinite(value) and low <= value <= high and (not whole or value == int(value))
    if not good:
        kind = "a whole number" if whole else "a number"
        raise SpeechError("invalid_value", f"{name} is {value!r}; allowed: {kind} from {low:g} to {high:g}", name)
