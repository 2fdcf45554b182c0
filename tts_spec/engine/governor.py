"""How many drafts a session gets, from what passes cost and how many drafts were right; and the numbers the engine shows.

A caller that names a drafter or a gamma gets it; else gamma is what gives most tokens a second at the present batch, none included. In
coupled mode no choice can change what is said. Knows streams' counters; knows no thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from models.bundle import Manifest
from tts_spec.engine.estimates import Acceptance, LinearCost
from tts_spec.engine.plan import SpeechPlan
from tts_spec.engine.scheduler import best_gamma
from tts_spec.engine.stream import SpeechStream
from tts_spec.engine.together import PassRecord
from tts_spec.types import SpeakOptions

MOST = 7  # drafts of a round the governor goes up to
LOOK_EVERY = 64  # rounds after which it drafts once even if that did not pay: acceptance may have changed
MEMORY = 0.98  # of running means


class Governor:
    """Estimates of one engine."""

    def __init__(self, manifest: Manifest) -> None:
        self._target = LinearCost(0.002, 0.0003)
        self._drafters = {name: LinearCost(0.0004, 0.00005) for name in manifest.drafters}
        self._acceptance = {name: Acceptance() for name in manifest.drafters}
        self._rounds = 0
        self._totals = dict.fromkeys(("rounds_total", "tokens_total", "drafted_total", "accepted_total"), 0.0)
        self._means: dict[str, float] = {}

    def gamma(self, options: SpeakOptions, plan: SpeechPlan, sessions: int) -> int:
        """Drafts of the next round for a session with these ``options`` in a batch of ``sessions``."""
        if plan.drafter == "none" or plan.mode != "coupled" or options.gamma is not None or options.drafter is not None:
            return plan.gamma
        if self._rounds % LOOK_EVERY == 0:
            return plan.gamma
        most = max(MOST, plan.gamma)
        return best_gamma(sessions, most, self._target, self._drafters[plan.drafter], self._acceptance[plan.drafter])

    def observe_pass(self, record: PassRecord) -> None:
        """A pass was made."""
        if record.network == "target":
            self._target.observe(record.rows, record.seconds)
            self._mean("batch_size", record.streams)
        elif record.network in self._drafters:
            self._drafters[record.network].observe(record.streams, record.seconds)

    def observe_round(self, streams: Sequence[SpeechStream]) -> None:
        """Every one of ``streams`` has done a step."""
        self._rounds += 1
        for stream in streams:
            done = stream.take_round()
            if done is None:
                continue
            if stream.plan.drafter in self._acceptance:
                self._acceptance[stream.plan.drafter].observe(done.drafted, done.accepted)
            self._totals["rounds_total"] += 1
            self._totals["tokens_total"] += len(done.decisions)
            self._totals["drafted_total"] += done.drafted
            self._totals["accepted_total"] += done.accepted
            self._mean("tau", len(done.decisions))
            self._mean("gamma", stream.gamma)

    def metrics(self) -> Mapping[str, float]:
        """Totals and running means; see ``Engine.metrics``."""
        return {**self._totals, **self._means}

    def _mean(self, name: str, value: float) -> None:
        self._means[name] = self._means.get(name, value) * MEMORY + value * (1 - MEMORY)
