"""Several protocols of one server in one load: every text is spoken over each of them, in turn, and they are compared pairwise.

Knows targets and utterances, no socket.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tts_spec.bench.latency.distribution import Distribution
from tts_spec.bench.latency.load import Heard
from tts_spec.bench.latency.target import Target
from tts_spec.bench.latency.utterance import Leave, Outcome, Utterance

NATIVE = "native"


class InTurn:
    """See ``Target``: each utterance goes over the protocol that its request names."""

    def __init__(self, targets: Mapping[str, Target]) -> None:
        self._targets = targets
        common = set.intersection(*(set(each.leaves) for each in targets.values()))
        self.leaves: tuple[Leave, ...] = tuple(leave for leave in Leave if leave in common)

    async def close(self) -> None:
        """See ``Target.close``."""
        for target in self._targets.values():
            await target.close()

    async def speak(self, utterance: Utterance) -> None:
        """See ``Target.speak``."""
        assert utterance.request.protocol is not None
        await self._targets[utterance.request.protocol].speak(utterance)


def by_protocol(heard: Heard, protocols: Sequence[str]) -> dict[str, Heard]:
    """What came of the load over each protocol."""

    def over(protocol: str, utterances: Sequence[Utterance]) -> tuple[Utterance, ...]:
        return tuple(each for each in utterances if each.request.protocol == protocol)

    return {
        name: replace(heard, everything=over(name, heard.everything), measured=over(name, heard.measured))
        for name in protocols
    }


@dataclass(frozen=True, slots=True)
class Beside:
    """One protocol's time to the first byte of audio beside the native one's, in ms; above 0: later.

    Attributes:
        p50, p95: difference of the percentiles.
        pairs: differences of the same text with the same seed, spoken over both.
    """

    p50: float
    p95: float
    pairs: Distribution

    def as_dict(self) -> dict[str, Any]:
        return {"p50": round(self.p50, 2), "p95": round(self.p95, 2), "pairs": self.pairs.as_dict()}


def beside_native(heard: Heard, protocols: Sequence[str]) -> dict[str, Beside]:
    """Every other protocol beside ``NATIVE``; none that has no complete utterance in common with it."""
    first: dict[int, dict[str, float]] = defaultdict(dict)  # seed, so text -> protocol -> ms
    for each in heard.measured:
        value = each.first_playable_ms()
        if each.request.protocol is not None and value is not None and each.outcome is Outcome.COMPLETE:
            first[each.request.seed][each.request.protocol] = value
    found: dict[str, Beside] = {}
    for name in protocols:
        both = [times for times in first.values() if name in times and NATIVE in times]
        if name == NATIVE or not both:
            continue
        other = Distribution.of([times[name] for times in both])
        native = Distribution.of([times[NATIVE] for times in both])
        assert other.p50 is not None
        assert native.p50 is not None
        assert other.p95 is not None
        assert native.p95 is not None
        pairs = Distribution.of([times[name] - times[NATIVE] for times in both])
        found[name] = Beside(other.p50 - native.p50, other.p95 - native.p95, pairs)
    return found
