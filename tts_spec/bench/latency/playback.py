"""A listener who plays audio the moment it arrives: when is what heard, and when is there nothing to play. Knows times, no sound.

All times are whole nanoseconds of one clock, so that "later than" is exact. As in nari's tts_bench, playback starts with the first
chunk, and a chunk that arrives after everything before it has been played is an underrun; playback then goes on with it at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Arrival:
    """A piece of audio that arrived whole."""

    at_ns: int
    length_ns: int  # above 0


@dataclass(frozen=True, slots=True)
class Underrun:
    """Playback stood still."""

    from_ns: int
    length_ns: int


@dataclass(frozen=True, slots=True)
class Playback:
    """One utterance as it was heard.

    Attributes:
        starts: for each arrival, when its first sample was played.
        min_lead_ns: the least audio that was still unplayed when the next arrived, below 0 in an underrun; None for a single arrival.
    """

    arrivals: tuple[Arrival, ...]
    starts: tuple[int, ...]
    underruns: tuple[Underrun, ...]
    min_lead_ns: int | None

    @property
    def end_ns(self) -> int | None:
        """When the last sample has been played; None without audio."""
        return self.starts[-1] + self.arrivals[-1].length_ns if self.starts else None

    @property
    def audio_ns(self) -> int:
        return sum(arrival.length_ns for arrival in self.arrivals)

    def heard_ns(self, offset_ns: int) -> int:
        """When the sample at ``offset_ns`` of the audio was heard. Raises ValueError outside the audio."""
        before = 0
        for arrival, start in zip(self.arrivals, self.starts, strict=True):
            if before <= offset_ns < before + arrival.length_ns:
                return start + offset_ns - before
            before += arrival.length_ns
        raise ValueError(f"offset_ns is {offset_ns}; allowed: 0 to {before - 1}")

    def level_ns(self, now_ns: int) -> int:
        """Audio that has arrived and is not played at ``now_ns``."""
        pairs = zip(self.arrivals, self.starts, strict=True)
        left = ((arrival, start + arrival.length_ns - now_ns) for arrival, start in pairs if arrival.at_ns <= now_ns)
        return sum(min(arrival.length_ns, rest) for arrival, rest in left if rest > 0)


def play(arrivals: Sequence[Arrival]) -> Playback:
    """Play ``arrivals`` (in order of time)."""
    starts: list[int] = []
    underruns: list[Underrun] = []
    leads: list[int] = []
    played_out = arrivals[0].at_ns if arrivals else 0
    for index, arrival in enumerate(arrivals):
        if index:
            leads.append(played_out - arrival.at_ns)
        if arrival.at_ns > played_out:
            underruns.append(Underrun(played_out, arrival.at_ns - played_out))
            played_out = arrival.at_ns
        starts.append(played_out)
        played_out += arrival.length_ns
    return Playback(tuple(arrivals), tuple(starts), tuple(underruns), min(leads, default=None))
