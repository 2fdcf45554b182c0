"""How many drafts a session gets, from what passes cost and how many drafts were right; and what one more session would cost.

A caller that names a drafter or a gamma gets it; else gamma is what gives most tokens a second at the present batch, none included. In
coupled mode no choice can change what is said. Knows streams' counters; knows no thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from models.bundle import Manifest
from tts_spec.engine.estimates import Acceptance, LinearCost, Ratio
from tts_spec.engine.plan import SpeechPlan
from tts_spec.engine.scheduler import RoundCosts
from tts_spec.engine.stream import SpeechStream
from tts_spec.engine.together import PassRecord
from tts_spec.types import SpeakOptions

MOST = 7  # drafts of a round the governor goes up to
LOOK_EVERY = 256  # rounds after which one session drafts once even if that did not pay: acceptance may have changed
DECIDE_EVERY = 16  # rounds for which a decision stands
MEMORY = 0.98  # of running means
PRIOR_RIGHT = 0.7  # of drafts not seen yet: who starts out drafting soon knows better, who does not hardly ever does
SLOWEST_FIRST_S = 0.5  # what took longer was not the engine's doing, or it is no use to know by how much
EXIT = "early-exit"
PLAIN_DRAFT_S = {"lookahead": 0.00002, "medusa": 0.0001}  # a draft of one session
PHONEMES_PER_S = 14.0  # of speech; each is one ADVANCE


class Governor:
    """Estimates of one engine."""

    def __init__(self, manifest: Manifest, frames_per_s: float) -> None:
        self._default = manifest.default_drafter
        self._most = max(MOST, manifest.default_gamma)
        self._target = LinearCost(0.0005, 0.0001)
        # Seconds of a draft for a batch; those that are no pass of a language model are not seen by ``observe_pass``.
        self._drafters = {name: LinearCost(0.00008, 0.00001) for name in (*manifest.drafters, EXIT)}
        self._drafters |= {name: LinearCost(0.0, cost_s) for name, cost_s in PLAIN_DRAFT_S.items()}
        self._acceptance = {name: Acceptance(PRIOR_RIGHT) for name in manifest.drafter_names if name != "none"}
        self._step = LinearCost(0.0001, 0.00003)  # seconds of a session's round beside all passes, by its drafts
        self._costs = {
            name: RoundCosts(self._target, self._drafters[name], self._step, self._acceptance[name])
            for name in self._acceptance
        }
        self._costs["none"] = RoundCosts(self._target, LinearCost(0.0, 0.0), self._step, Acceptance())
        self._first_audio = LinearCost(0.02, 0.004, memory=50)  # seconds, by how many wait for theirs
        # Seconds of the codec, and tokens, for each second of audio.
        self._codec = Ratio(0.02, 1.0)
        self._tokens = Ratio(frames_per_s * manifest.codec.codebooks + PHONEMES_PER_S, 1.0)
        self._passes_s = self._codec_s = 0.0  # of this round
        self._busy = Ratio(0.0, 1.0)  # tokens in each second of rounds
        self._rounds = self._look_at = 0
        self._best: dict[
            tuple[str, int], int
        ] = {}  # gamma by drafter and batch, decided since DECIDE_EVERY rounds at most
        self._loads: dict[int, float] = {}  # by sessions, likewise
        self._totals = dict.fromkeys(("rounds_total", "tokens_total", "drafted_total", "accepted_total"), 0.0)
        self._means: dict[str, float] = {}

    def gamma(self, options: SpeakOptions, plan: SpeechPlan, sessions: int) -> int:
        """Drafts of the next round for a session with these ``options`` in a batch of ``sessions``."""
        if plan.drafter == "none" or plan.mode != "coupled" or options.gamma is not None or options.drafter is not None:
            return plan.gamma
        if self._rounds >= self._look_at:
            self._look_at = self._rounds + LOOK_EVERY
            return plan.gamma
        return self._best_gamma(plan.drafter, sessions)

    def load(self, sessions: int) -> float:
        """See ``Costs.load``; with the bundle's own drafter and the gamma that is best at this number."""
        if not sessions:
            return 0.0
        if sessions not in self._loads:
            gamma = self._best_gamma(self._default, sessions) if self._default != "none" else 0
            costs = self._costs[self._default]
            self._loads[sessions] = costs.load(sessions, gamma, self._tokens.value, self._codec.value)
        return self._loads[sessions]

    def first_audio_s(self, sessions: int) -> float:
        """See ``Costs.first_audio_s``."""
        return self._first_audio.of(sessions)

    def observe_pass(self, record: PassRecord) -> None:
        """A pass was made."""
        if record.network == "target":
            self._target.observe(record.rows, record.seconds)
            self._passes_s += record.seconds
            self._mean("batch_size", record.streams)
        elif record.network in self._drafters:
            # By rows: a drafter that was not asked for some rounds first takes in what it missed, which is not what a draft costs.
            self._drafters[record.network].observe(record.rows, record.seconds)
            self._passes_s += record.seconds
        else:
            self._codec_s += record.seconds

    def observe_round(self, streams: Sequence[SpeechStream], seconds: float, audio_s: float) -> None:
        """Every one of ``streams`` has done a step; all took ``seconds`` and gave ``audio_s`` of audio."""
        self._rounds += 1
        if self._rounds % DECIDE_EVERY == 0:
            self._best.clear()
            self._loads.clear()
        tokens = rounds = drafted = 0
        for stream in streams:
            done = stream.take_round()
            if done is None:
                continue
            if stream.plan.drafter in self._acceptance:
                self._acceptance[stream.plan.drafter].observe(done.longest, done.accepted, stream.gamma)
            rounds += 1
            tokens += len(done.decisions)
            drafted += done.drafted
            self._totals["accepted_total"] += done.accepted
            self._mean("tau", len(done.decisions))
            self._mean("gamma", stream.gamma)
            if done.drafted:
                self._mean("acceptance", done.accepted / done.drafted)
        self._totals["rounds_total"] += rounds
        self._totals["tokens_total"] += tokens
        self._totals["drafted_total"] += drafted
        if rounds:
            self._step.observe(drafted / rounds, max(0.0, seconds - self._passes_s - self._codec_s) / rounds)
        self._codec.observe(self._codec_s, audio_s)
        self._tokens.observe(tokens, audio_s)
        self._busy.observe(tokens, seconds)
        self._passes_s = self._codec_s = 0.0

    def observe_first_audio(self, sessions: int, seconds: float) -> None:
        """A session's first audio has left, ``seconds`` after there was something to say, while ``sessions`` waited for theirs."""
        self._first_audio.observe(sessions, min(seconds, SLOWEST_FIRST_S))

    def metrics(self) -> Mapping[str, float]:
        """Totals and running means; see ``Engine.metrics``."""
        return {**self._totals, **self._means, "tokens_per_second": self._busy.value}

    def _best_gamma(self, drafter: str, sessions: int) -> int:
        key = drafter, sessions
        if key not in self._best:
            self._best[key] = self._costs[drafter].best_gamma(sessions, self._most)
        return self._best[key]

    def _mean(self, name: str, value: float) -> None:
        self._means[name] = self._means.get(name, value) * MEMORY + value * (1 - MEMORY)
