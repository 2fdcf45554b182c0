"""What the harness can drive: anything that speaks one utterance. Knows the border, not what is behind it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from tts_spec.bench.latency.playback import SECOND
from tts_spec.bench.latency.utterance import Leave, Utterance

Clock = Callable[[], int]  # nanoseconds; ``time.perf_counter_ns`` unless a test has its own


class Target(Protocol):
    """A server, or something that plays one. Many utterances may be spoken at once."""

    leaves: tuple[Leave, ...]  # how a listener can leave it; where cancel is none, no cancel is measured

    async def close(self) -> None:
        """Drop what is kept between utterances."""

    async def speak(self, utterance: Utterance) -> None:
        """Speak ``utterance.request`` and fill in what happens; a failure is an outcome and raises nothing.

        When the task is cancelled the connection is dropped and the utterance stays unfinished.
        """


async def sleep_until(due_ns: int, clock: Clock = time.perf_counter_ns) -> None:
    """Sleep until the clock says ``due_ns``; not at all when that has passed."""
    if (rest := due_ns - clock()) > 0:
        await asyncio.sleep(rest / SECOND)
