"""One utterance as the harness saw it: what was asked, what arrived when, how it ended. Knows times and sound, no sockets.

Times are whole nanoseconds of one clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from tts_spec.bench.latency.onset import OnsetDetector
from tts_spec.bench.latency.playback import SECOND, Arrival, Playback, play

MILLISECOND = 1_000_000


class Leave(StrEnum):
    """How a listener leaves early."""

    CANCEL = "cancel"  # says so and stays for the answer
    DISCONNECT = "disconnect"  # drops the connection


class Outcome(StrEnum):
    """How an utterance ended."""

    UNFINISHED = "unfinished"
    COMPLETE = "complete"
    LEFT = "left"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Request:
    """What to say and how."""

    text: str
    seed: int = 0
    drafter: str | None = None  # None = nothing said about it
    voice: str | None = None
    protocol: str | None = None  # where several are measured in one load
    words_per_s: float | None = None  # text comes by the word, as from a language model; None = whole
    leave: Leave | None = None
    leave_after_s: float = 0.0  # after the first audio

    def pieces(self) -> list[tuple[float, str]]:
        """The text as it arrives: seconds after the first piece, and the piece."""
        if self.words_per_s is None:
            return [(0.0, self.text)]
        words = self.text.split()
        last = len(words) - 1
        return [(index / self.words_per_s, word if index == last else word + " ") for index, word in enumerate(words)]


@dataclass(slots=True)
class Utterance:
    """Filled in as things happen. The derived values need ``sent_ns`` and audio; without them they are None."""

    request: Request
    session: int
    due_ns: int  # when it was to begin
    opened_ns: int  # when the connection was asked for
    sent_ns: int | None = None  # t0: just before the first text
    ended_ns: int | None = None  # the server said that it is over, or the connection ended
    left_ns: int | None = None  # the cancel was sent, or the connection dropped
    free_ns: int | None = None  # the server's gauge says that the slot of one who left is free
    outcome: Outcome = Outcome.UNFINISHED
    error: str = ""
    sample_rate: int = 24_000
    arrivals: list[Arrival] = field(default_factory=list)
    _odd: bytes = field(default=b"", init=False)  # half a sample that waits for the other half
    _detector: OnsetDetector | None = field(default=None, init=False)

    def hear(self, now_ns: int, data: bytes) -> None:
        """16-bit little-endian audio arrived, cut anywhere."""
        data = self._odd + data
        whole = len(data) // 2 * 2
        self._odd = data[whole:]
        if whole:
            if self._detector is None:
                self._detector = OnsetDetector(self.sample_rate)
            self._detector.feed(np.frombuffer(data[:whole], "<i2"))
            self.arrivals.append(Arrival(now_ns, whole // 2 * SECOND // self.sample_rate))

    def fail(self, error: str, *, refused: bool = False) -> None:
        """It did not work."""
        self.outcome = Outcome.REFUSED if refused else Outcome.FAILED
        self.error = error

    @property
    def onset_ns(self) -> int | None:
        """Audio before the first audible sample: the leading silence."""
        onset = self._detector.onset if self._detector else None
        return None if onset is None else onset * SECOND // self.sample_rate

    def playback(self) -> Playback:
        """How it was heard. Audio that arrived after leaving was not."""
        left = self.left_ns
        return play([arrival for arrival in self.arrivals if left is None or arrival.at_ns <= left])

    def first_audio_ms(self) -> float | None:
        """From the first text to the first audible sample as it was heard."""
        if self.sent_ns is None or self.onset_ns is None:
            return None
        return (play(self.arrivals).heard_ns(self.onset_ns) - self.sent_ns) / MILLISECOND

    def first_playable_ms(self) -> float | None:
        """From the first text to the first sample."""
        if self.sent_ns is None or not self.arrivals:
            return None
        return (self.arrivals[0].at_ns - self.sent_ns) / MILLISECOND

    def end_to_end_ms(self) -> float | None:
        """From the first text to the end of a complete utterance."""
        if self.sent_ns is None or self.ended_ns is None or self.outcome is not Outcome.COMPLETE:
            return None
        return (self.ended_ns - self.sent_ns) / MILLISECOND

    def gaps_ms(self) -> list[float]:
        """From each arrival to the next."""
        return [(b.at_ns - a.at_ns) / MILLISECOND for a, b in zip(self.arrivals, self.arrivals[1:], strict=False)]

    def cancel_ms(self) -> float | None:
        """From a cancel sent to the last audio received; 0 when none followed."""
        if self.left_ns is None or self.request.leave is not Leave.CANCEL:
            return None
        late = [arrival.at_ns for arrival in self.arrivals if arrival.at_ns > self.left_ns]
        return (max(late, default=self.left_ns) - self.left_ns) / MILLISECOND

    def free_ms(self) -> float | None:
        """From leaving to the slot being free."""
        if self.left_ns is None or self.free_ns is None:
            return None
        return (self.free_ns - self.left_ns) / MILLISECOND
