"""Whether one more live session may come in, and when to ask again. Pure: times and costs come in as numbers.

A session is taken only if the budgets of all can still be kept: there must be time for everybody's audio, and the first audio of those who
have not been heard yet must not be late for the newcomer's sake. Knows no session, no thread and no model.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Costs(Protocol):
    """What the engine has learnt about itself."""

    def load(self, sessions: int) -> float:
        """Share of the engine's time that so many live sessions need."""

    def first_audio_s(self, sessions: int) -> float:
        """Seconds to the first audio when so many begin together."""


def keeps_budgets(costs: Costs, live: int, waiting_s: Iterable[float], first_audio_s: float, load_limit: float) -> bool:
    """Whether a session may join ``live`` others.

    A lone session always may: nobody is harmed, and only by serving does the engine learn what it costs.

    Args:
        waiting_s: of each session not heard yet, the seconds left of its first-audio budget.
        first_audio_s: the newcomer's.
    """
    if not live:
        return True
    left = list(waiting_s)
    return costs.load(live + 1) <= load_limit and costs.first_audio_s(len(left) + 1) <= min([first_audio_s, *left])


class Stay:
    """How long sessions stay, running; from it, when there will be room again."""

    LEAST_S, MOST_S = 0.2, 30.0

    def __init__(self, prior_s: float = 5.0, memory: float = 0.9) -> None:
        self._mean_s = prior_s
        self._memory = memory

    def observe(self, seconds: float) -> None:
        """A session that was admitted has left after ``seconds``."""
        self._mean_s = self._mean_s * self._memory + seconds * (1 - self._memory)

    def retry_after_ms(self, admitted: int, ahead: int) -> int:
        """When to ask again: ``admitted`` sessions leave at even distances, and ``ahead`` others wait already."""
        seconds = self._mean_s / max(admitted, 1) * (ahead + 1)
        return round(1000 * min(max(seconds, self.LEAST_S), self.MOST_S))
