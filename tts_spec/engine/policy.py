"""Which drafter, and how many drafts, the next rounds of ``auto`` streams have: what gives most tokens a second, as measured.

One drafter stands, for each size of batch, until another, or none, is found to be better. That is found by looks: a few rounds now and
then by another one, held against the rounds just before, so that a busier machine is no reason to change. Looks go to the promising
first, and all together may lose ``LOOK_SHARE`` of the time. How many are drafted follows from what passes cost and how many drafts
were right. A look underrates a drafter with a cache a little, which begins with the last inputs only.

A choice is made before its round, from rounds that are over: it never sees the drafts it is about. So it is causal, and ratio mode keeps
the target's distribution under it; coupled mode keeps the very tokens under any policy. Knows costs and counts; knows no stream, no model
and no clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from models.bundle import Manifest
from tts_spec.engine.estimates import Acceptance, LinearCost, Ratio
from tts_spec.engine.scheduler import GAMMAS, RoundCosts
from tts_spec.engine.together import PassRecord
from tts_spec.speculate.round import Round
from tts_spec.types import SpeculationMode

SIZES = (1, 2, 4, 8)  # streams up to which batches are alike; larger ones are
DECIDE_EVERY = 16  # rounds for which a gamma stands
LOOK_SHARE = 0.01  # of the time may be lost in looks
LOOK_ROUNDS = 8  # of a look; in one before, what was missed is taken in
FIRST_LOOK = 64  # rounds of what stands before anything is held against it
ENOUGH = 6 * LOOK_ROUNDS  # rounds of looks after which another may come to stand
BETTER = 1.03  # times as many tokens a second as what stands
BONUS = 0.5  # how promising it is never to have been looked at, in times as many tokens
LOOK_MEMORY = 0.98  # of earlier looks with each new one, at whatever drafter
MEMORY_S = 10.0  # of the time over which ``LOOK_SHARE`` is kept: nothing is saved up for many looks at once
OUTLIER = 4.0  # times the usual seconds a token: more was not the round's doing
LEARN_EVERY = 4  # rounds, once ``FIRST_LOOK`` of them are over: costs change slowly, and learning is not free
MOST = 7  # drafts of a round, where a request does not say
PRIOR_RIGHT = 0.7  # of drafts not seen yet: who starts out drafting soon knows better, who does not hardly ever does
EXIT = "early-exit"
DRAFT_S = {"none": 0.0, "lookahead": 0.00002, "medusa": 0.0001}  # of one stream, where a draft is no pass that is seen


class Choice(NamedTuple):
    """How a round drafts."""

    drafter: str
    gamma: int  # at most so many drafts


class Done(NamedTuple):
    """One stream's part in a round that is over."""

    choice: Choice
    mode: SpeculationMode
    round: Round


PLAIN = Choice("none", 0)


@dataclass(slots=True)
class _Tried:
    """What looks at one drafter say: seconds they took, and seconds in which what stands says as much."""

    rounds: float = 0.0
    seconds: float = 0.0
    usual_s: float = 0.0

    @property
    def gain(self) -> float:
        """Times as many tokens a second as what stands."""
        return self.usual_s / self.seconds if self.seconds > 0 else 1.0

    @property
    def promise(self) -> float:
        """The gain at best; what was not looked at for long is forgotten."""
        known = self.rounds / (self.rounds + LOOK_ROUNDS)
        return 1 + (self.gain - 1) * known + BONUS / math.sqrt(1 + self.rounds)


@dataclass(slots=True)
class _Regime:
    """What stands in batches of one size and mode, and what is known of the others."""

    standing: str
    pace: Ratio = field(init=False)  # seconds a token of what stands
    rounds: int = field(init=False)  # of what stands, since it does
    tried: dict[str, _Tried] = field(default_factory=dict)
    gammas: dict[tuple[str, int, int], int] = field(default_factory=dict)  # by drafter, streams, most

    def __post_init__(self) -> None:
        self.stand(self.standing)

    def stand(self, drafter: str) -> None:
        """From now on ``drafter`` stands."""
        self.standing = drafter
        self.pace, self.rounds = Ratio(0.0, 0.0, memory=FIRST_LOOK), 0


@dataclass(slots=True)
class _Look:
    """Rounds of all streams of a regime by another drafter, then one in which what stands takes in what it missed."""

    regime: _Regime
    drafter: str
    rounds: int = 0
    seconds: float = 0.0
    usual_s: float = 0.0  # see ``_Tried``


class Policy:
    """Estimates and decisions for the streams of one owner."""

    def __init__(self, manifest: Manifest, look_share: float = LOOK_SHARE) -> None:
        self._names = tuple(manifest.drafter_names)
        # Seconds of a pass by rows, of a stream's rest by drafts, of a draft by streams.
        self._target, self._step = LinearCost(0.0005, 0.00005), LinearCost(0.0001, 0.00003)
        self._drafts = {name: LinearCost(0.00005, 0.00001) for name in (*manifest.drafters, EXIT)}
        self._drafts |= {name: LinearCost(0.0, cost_s) for name, cost_s in DRAFT_S.items()}
        modes: tuple[SpeculationMode, ...] = ("coupled", "ratio")
        self._costs = {
            (mode, name): RoundCosts(self._target, self._drafts[name], self._step, Acceptance(PRIOR_RIGHT))
            for mode in modes
            for name in self._names
        }
        self._first = manifest.default_drafter
        self._regimes: dict[tuple[SpeculationMode, int], _Regime] = {}
        self._look: _Look | None = None
        self._look_share = look_share
        self._round = 0
        self._spent_s = self._lost_s = self._passes_s = 0.0

    def choose(self, streams: int, mode: SpeculationMode, most: int) -> Choice:
        """How the next round of a stream drafts, in a batch of ``streams``: at most ``most`` drafts."""
        regime = self._regime(streams, mode)
        look = self._look
        looks = look is not None and look.regime is regime and look.rounds <= LOOK_ROUNDS
        return self._choice(regime, look.drafter if looks and look else regime.standing, streams, mode, most)

    def best(self, streams: int, mode: SpeculationMode, most: int) -> Choice:
        """The same, looks left out."""
        regime = self._regime(streams, mode)
        return self._choice(regime, regime.standing, streams, mode, most)

    def costs(self, drafter: str, mode: SpeculationMode) -> RoundCosts:
        """What is known of rounds with drafts of ``drafter``."""
        return self._costs[mode, drafter]

    def observe_pass(self, record: PassRecord) -> None:
        """A pass of any network was made."""
        if not self._learns:
            return
        if record.network == "target":
            self._target.observe(record.rows, record.seconds)
        elif record.network in self._drafts:
            # By rows: a drafter that was not asked for some rounds first takes in what it missed, which is not what a draft costs.
            self._drafts[record.network].observe(record.rows, record.seconds)
        else:
            return
        self._passes_s += record.seconds

    def observe_round(self, done: Sequence[Done], seconds: float) -> None:
        """A round of these streams is over; without text and codec it took ``seconds``."""
        if not done:
            return
        if self._learns:
            for each in done:
                acceptance = self._costs[each.mode, each.choice.drafter].acceptance
                acceptance.observe(each.round.longest, each.round.accepted, each.choice.gamma)
            drafted = sum(each.round.drafted for each in done) / len(done)
            self._step.observe(drafted, max(0.0, seconds - self._passes_s) / len(done))
        self._passes_s = 0.0
        keep = max(0.0, 1 - seconds / MEMORY_S)
        self._spent_s, self._lost_s = self._spent_s * keep + seconds, self._lost_s * keep
        first = done[0]
        if all(each.choice.drafter == first.choice.drafter and each.mode == first.mode for each in done):
            regime = self._regime(len(done), first.mode)
            self._compare(regime, first.choice.drafter, sum(len(each.round.decisions) for each in done), seconds)
        self._round += 1

    @property
    def _learns(self) -> bool:
        return self._round < FIRST_LOOK or self._round % LEARN_EVERY == 0

    def _regime(self, streams: int, mode: SpeculationMode) -> _Regime:
        size = next((size for size in SIZES if streams <= size), SIZES[-1] + 1)
        if (mode, size) not in self._regimes:
            self._regimes[mode, size] = self._new_regime(streams, mode)
        return self._regimes[mode, size]

    def _new_regime(self, streams: int, mode: SpeculationMode) -> _Regime:
        """What stands at first: what does in a smaller batch, unless drafts of it are not expected to pay."""
        smaller = [each for (other, size), each in self._regimes.items() if other == mode and size < streams]
        name = next((each.standing for each in reversed(smaller) if each.standing != "none"), self._first)
        costs = self._costs[mode, name]
        return _Regime(name if name != "none" and costs.pays(streams, costs.best_gamma(streams, MOST)) else "none")

    def _choice(self, regime: _Regime, drafter: str, streams: int, mode: SpeculationMode, most: int) -> Choice:
        if drafter == "none" or not most:
            return PLAIN
        key = drafter, streams, most
        gamma = regime.gammas.get(key, max(each for each in GAMMAS if each <= most))
        if self._round >= FIRST_LOOK and (self._round % DECIDE_EVERY == 0 or key not in regime.gammas):
            costs = self._costs[mode, drafter]
            best = costs.best_gamma(streams, most)
            # A line that ends by itself is as good with many drafts allowed: what is expected of fewer must be clearly more.
            if costs.goodput(streams, best) > BETTER * costs.goodput(streams, gamma):
                gamma = best
        regime.gammas[key] = gamma
        # One round of them has more drafts or fewer, lest what others would cost and bring be forgotten.
        other = self._round % (2 * DECIDE_EVERY) - DECIDE_EVERY // 2
        if other == 0:
            gamma = min((each for each in GAMMAS if gamma < each <= most), default=gamma)
        elif other == DECIDE_EVERY:
            gamma = max((each for each in GAMMAS if each < gamma), default=gamma)
        return Choice(drafter, gamma)

    def _compare(self, regime: _Regime, drafter: str, tokens: int, seconds: float) -> None:
        """All of a batch took part in a round by ``drafter``: of what stands, or of a look."""
        look = self._look
        if look is not None:
            self._go_on(look, regime, drafter, tokens, seconds)
        elif drafter == regime.standing:
            if regime.rounds > FIRST_LOOK // 4:  # those before are slow: something is loaded, caches are cold
                seconds = min(seconds, OUTLIER * tokens * regime.pace.value)
            if regime.rounds >= FIRST_LOOK // 4:
                regime.pace.observe(seconds, tokens)
            regime.rounds += 1
            if (
                regime.rounds >= FIRST_LOOK
                and self._lost_s + LOOK_ROUNDS / 2 * seconds <= self._look_share * self._spent_s
            ):
                others = [name for name in self._names if name != regime.standing]
                promising = max(others, key=lambda name: regime.tried.setdefault(name, _Tried()).promise)
                self._look = _Look(regime, promising)

    def _go_on(self, look: _Look, regime: _Regime, drafter: str, tokens: int, seconds: float) -> None:
        """A round since a look began."""
        recovers = look.rounds > LOOK_ROUNDS
        if regime is not look.regime or drafter != (regime.standing if recovers else look.drafter):
            self._look = None  # the batch has changed
            return
        usual_s = tokens * regime.pace.value
        self._lost_s = max(0.0, self._lost_s + seconds - usual_s)
        if 0 < look.rounds <= LOOK_ROUNDS:
            look.seconds += min(seconds, OUTLIER * usual_s)
            look.usual_s += usual_s
        look.rounds += 1
        if recovers:
            self._look = None
            self._judge(regime, look)

    def _judge(self, regime: _Regime, look: _Look) -> None:
        """Take a look into what is known, and let its drafter stand if that is enough and good."""
        for other in regime.tried.values():
            other.rounds *= LOOK_MEMORY
            other.seconds *= LOOK_MEMORY
            other.usual_s *= LOOK_MEMORY
        tried = regime.tried[look.drafter]
        tried.rounds += LOOK_ROUNDS
        tried.seconds += look.seconds
        tried.usual_s += look.usual_s
        gain = tried.gain
        if tried.rounds < ENOUGH or gain < BETTER:
            return
        # From now on everything is held against this one.
        regime.tried[regime.standing] = _Tried(tried.rounds, tried.usual_s, tried.seconds)
        del regime.tried[look.drafter]
        for name, other in regime.tried.items():
            if name != regime.standing:
                other.usual_s /= gain
        regime.stand(look.drafter)
