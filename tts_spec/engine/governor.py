"""What the engine learns about itself: what an ``auto`` session drafts, what one more session would cost, and figures for whoever watches.

A caller that names a drafter gets it; else ``Policy`` decides. Knows streams' counters; knows no thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from models.bundle import Manifest
from tts_spec.engine.estimates import LinearCost, Ratio
from tts_spec.engine.plan import AUTO, SpeechPlan
from tts_spec.engine.policy import DECIDE_EVERY, Choice, Done, Policy
from tts_spec.engine.stream import SpeechStream
from tts_spec.engine.together import PassRecord

MEMORY = 0.98  # of running means
SLOWEST_FIRST_S = 0.5  # what took longer was not the engine's doing, or it is no use to know by how much
PHONEMES_PER_S = 14.0  # of speech; each is one ADVANCE


class Governor:
    """Estimates of one engine."""

    def __init__(self, manifest: Manifest, frames_per_s: float) -> None:
        self._most = manifest.default_gamma
        self._policy = Policy(manifest)
        self._first_audio = LinearCost(0.02, 0.004, memory=50)  # seconds, by how many wait for theirs
        # Seconds of the codec, and tokens, for each second of audio.
        self._codec = Ratio(0.02, 1.0)
        self._tokens = Ratio(frames_per_s * manifest.codec.codebooks + PHONEMES_PER_S, 1.0)
        self._codec_s = 0.0  # of this round
        self._busy = Ratio(0.0, 1.0)  # tokens in each second of rounds
        self._rounds = 0
        self._loads: dict[int, float] = {}  # by sessions, since DECIDE_EVERY rounds at most
        self._totals = dict.fromkeys(
            ("rounds_total", "tokens_total", "drafted_total", "accepted_total", "capped_total"), 0.0
        )
        self._means: dict[str, float] = {}

    def choose(self, plan: SpeechPlan, sessions: int) -> Choice:
        """How a session with this ``plan`` drafts in the next round, in a batch of ``sessions``."""
        if plan.drafter != AUTO:
            return Choice(plan.drafter, plan.gamma)
        return self._policy.choose(sessions, plan.mode, plan.gamma)

    def load(self, sessions: int) -> float:
        """See ``Costs.load``; with the drafts that are best at this number."""
        if not sessions:
            return 0.0
        if sessions not in self._loads:
            best = self._policy.best(sessions, "coupled", self._most)
            costs = self._policy.costs(best.drafter, "coupled")
            gamma = best.gamma if costs.pays(sessions, best.gamma) else 0  # what stands is not yet what will
            self._loads[sessions] = costs.load(sessions, gamma, self._tokens.value, self._codec.value)
        return self._loads[sessions]

    def first_audio_s(self, sessions: int) -> float:
        """See ``Costs.first_audio_s``."""
        return self._first_audio.of(sessions)

    def observe_pass(self, record: PassRecord) -> None:
        """A pass was made."""
        if record.network == "codec":
            self._codec_s += record.seconds
            return
        self._policy.observe_pass(record)
        if record.network == "target":
            self._mean("batch_size", record.streams)

    def observe_round(self, streams: Sequence[SpeechStream], seconds: float, audio_s: float) -> None:
        """Every one of ``streams`` has done a step; all took ``seconds`` and gave ``audio_s`` of audio."""
        self._rounds += 1
        if self._rounds % DECIDE_EVERY == 0:
            self._loads.clear()
        done = []
        tokens = 0
        for stream in streams:
            made = stream.take_round()
            if made is None:
                continue
            done.append(Done(Choice(stream.drafter, stream.gamma), stream.plan.mode, made))
            tokens += len(made.decisions)
            self._totals["drafted_total"] += made.drafted
            self._totals["accepted_total"] += made.accepted
            self._totals["capped_total"] += stream.take_capped()
            self._mean("tau", len(made.decisions))
            self._mean("gamma", stream.gamma)
            if made.drafted:
                self._mean("acceptance", made.accepted / made.drafted)
        self._totals["rounds_total"] += len(done)
        self._totals["tokens_total"] += tokens
        self._policy.observe_round(done, seconds - self._codec_s)
        self._codec.observe(self._codec_s, audio_s)
        self._tokens.observe(tokens, audio_s)
        self._busy.observe(tokens, seconds)
        self._codec_s = 0.0

    def observe_first_audio(self, sessions: int, seconds: float) -> None:
        """A session's first audio has left, ``seconds`` after there was something to say, while ``sessions`` waited for theirs."""
        self._first_audio.observe(sessions, min(seconds, SLOWEST_FIRST_S))

    def metrics(self) -> Mapping[str, float]:
        """Totals and running means; see ``Engine.metrics``."""
        return {**self._totals, **self._means, "tokens_per_second": self._busy.value}

    def _mean(self, name: str, value: float) -> None:
        self._means[name] = self._means.get(name, value) * MEMORY + value * (1 - MEMORY)
