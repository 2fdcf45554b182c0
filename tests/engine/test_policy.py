"""What the policy makes of machines and drafters of the tests' own: every second is arithmetic, every draft a coin with a seed."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from tts_spec.engine.policy import BETTER, FIRST_LOOK, LOOK_SHARE, Choice, Done, Policy
from tts_spec.engine.together import PassRecord
from tts_spec.speculate.round import Round
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import SpeculationMode

Noise = Callable[[random.Random], float]


@dataclass(frozen=True)
class Kind:
    """A drafter: seconds of a draft, chance that one is right."""

    draft_s: float
    right: float


@dataclass
class Machine:
    """Rounds of ``streams``, one after another, as the policy says."""

    kinds: Mapping[str, Kind]
    target_s: float = 0.0005
    row_s: float = 0.00008
    rest_s: float = 0.0001
    noise: Noise = lambda rng: 1.0
    seed: int = 1
    seconds: float = 0.0  # without noise
    tokens: int = 0
    rounds: Counter[str] = field(default_factory=Counter)
    changes: int = 0  # of drafter
    _last: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)

    def pace(self, choice: Choice, streams: int = 1) -> float:
        """Expected seconds a token of rounds that draft so."""
        if choice.drafter == "none":
            return (self.target_s + self.row_s * streams + self.rest_s * streams) / streams
        kind = self.kinds[choice.drafter]
        tokens = sum(kind.right**place for place in range(choice.gamma + 1))
        passes = self.target_s + self.row_s * streams * (choice.gamma + 1) + kind.draft_s * choice.gamma
        return (passes + self.rest_s * streams) / tokens / streams

    def best(self, streams: int = 1, most: int = 7) -> float:
        choices = [Choice(name, gamma) for name in self.kinds for gamma in range(1, most + 1)]
        return min(self.pace(choice, streams) for choice in [*choices, Choice("none", 0)])

    def run(
        self, policy: Policy, rounds: int, streams: int = 1, mode: SpeculationMode = "coupled", most: int = 7
    ) -> None:
        for _ in range(rounds):
            seconds = 0.0
            slow = self.noise(self._rng)
            chosen = [policy.choose(streams, mode, most) for _ in range(streams)]
            assert all(choice.gamma <= most for choice in chosen)
            done = []
            for choice in chosen:
                accepted = 0
                while accepted < choice.gamma and self._rng.random() < self.kinds[choice.drafter].right:
                    accepted += 1
                made = Round(cast(Any, None), (0,) * (accepted + 1), choice.gamma, choice.gamma, accepted)
                done.append(Done(choice, mode, made))
                self.tokens += accepted + 1
            (name,) = {choice.drafter for choice in chosen}
            gamma = chosen[0].gamma
            if name != "none" and self._last.get(streams) != name:  # it takes in what it missed
                seconds += 0.001 * slow
                policy.observe_pass(PassRecord(name, streams, 20 * streams, 0.001 * slow))
            for _ in range(gamma):
                seconds += self.kinds[name].draft_s * slow
                policy.observe_pass(PassRecord(name, streams, streams, self.kinds[name].draft_s * slow))
            rows = streams * (gamma + 1)
            target_s = (self.target_s + self.row_s * rows) * slow
            policy.observe_pass(PassRecord("target", streams, rows, target_s))
            seconds += target_s + self.rest_s * streams * slow
            policy.observe_round(done, seconds)
            self.seconds += seconds / slow
            self.rounds[name] += 1
            self.changes += self._last.get(streams, name) != name
            self._last[streams] = name


GOOD, FAIR, BAD = Kind(0.00004, 0.75), Kind(0.00004, 0.6), Kind(0.0002, 0.2)


def kinds(**given: Kind) -> dict[str, Kind]:
    return {"model": BAD, "early-exit": BAD, "medusa": BAD, "lookahead": BAD} | {
        name.replace("_", "-"): kind for name, kind in given.items()
    }


def preempted(rng: random.Random) -> float:
    """A busy machine: most rounds are half as slow again, some ten times."""
    return rng.choice([1.0, 1.1, 1.3, 1.5]) * (10.0 if rng.random() < 0.05 else 1.0)


@pytest.mark.parametrize("winner", ["model", "early-exit", "medusa", "lookahead", "none"])
@pytest.mark.parametrize("noise", [lambda rng: 1.0, preempted], ids=["quiet", "busy"])
def test_the_fastest_comes_to_stand_whatever_stood_at_first(tiny: Synthesizer, winner: str, noise: Noise) -> None:
    machine = Machine(kinds() if winner == "none" else kinds(**{winner.replace("-", "_"): GOOD}), noise=noise)
    policy = Policy(tiny.bundle.manifest)
    machine.run(policy, 30_000)
    assert policy.best(1, "coupled", 7).drafter == winner
    before = machine.seconds, machine.tokens
    machine.run(policy, 10_000)
    pace = (machine.seconds - before[0]) / (machine.tokens - before[1])
    assert pace < 1.05 * machine.best()


def test_where_no_drafter_is_good_it_is_hardly_slower_than_plain(tiny: Synthesizer) -> None:
    machine = Machine(kinds())
    policy = Policy(tiny.bundle.manifest)
    machine.run(policy, 2_000)  # what stood at first was not known to be bad
    before = machine.seconds, machine.tokens
    machine.run(policy, 20_000)
    pace = (machine.seconds - before[0]) / (machine.tokens - before[1])
    assert pace < (1 + 1.5 * LOOK_SHARE) * machine.pace(Choice("none", 0))


def test_looks_lose_no_more_than_their_share_and_every_drafter_gets_some(tiny: Synthesizer) -> None:
    machine = Machine(kinds(model=GOOD))
    policy = Policy(tiny.bundle.manifest)
    machine.run(policy, 20_000)
    stands = policy.best(1, "coupled", 7)
    assert stands.drafter == "model"
    # As much again for rounds with another gamma, and for those before anything was known.
    assert machine.seconds / machine.tokens < (1 + 2 * LOOK_SHARE) * machine.pace(stands)
    assert min(machine.rounds.values()) >= 9
    assert set(machine.rounds) == {"none", *machine.kinds}
    assert machine.rounds["model"] > 0.97 * sum(machine.rounds.values())


def test_it_begins_with_the_bundles_own_and_looks_nowhere_at_first(tiny: Synthesizer) -> None:
    """A short text is spoken before anything is known."""
    machine = Machine(kinds())
    machine.run(Policy(tiny.bundle.manifest), FIRST_LOOK)
    assert set(machine.rounds) == {"model"}
    machine = Machine(kinds())
    machine.run(Policy(replace(tiny.bundle.manifest, default_drafter="medusa")), FIRST_LOOK)
    assert set(machine.rounds) == {"medusa"}


def test_it_does_not_flap_between_equals(tiny: Synthesizer) -> None:
    machine = Machine(dict.fromkeys(kinds(), FAIR), noise=preempted)
    policy = Policy(tiny.bundle.manifest)
    stood = []
    for _ in range(200):
        machine.run(policy, 200)
        stood.append(policy.best(1, "coupled", 7).drafter)
    assert sum(one != other for one, other in itertools.pairwise(stood)) < 12
    # What stands is the fastest but for what a look can tell.
    assert machine.seconds / machine.tokens < BETTER * machine.best()


def test_a_machine_that_becomes_slower_is_no_reason_to_change(tiny: Synthesizer) -> None:
    machine = Machine(kinds(model=GOOD, medusa=FAIR))
    policy = Policy(tiny.bundle.manifest)
    for slow in (1.0, 3.0, 1.0, 5.0, 1.0):
        machine.noise = lambda rng, slow=slow: slow  # type: ignore[misc]
        machine.run(policy, 3_000)
        assert policy.best(1, "coupled", 7).drafter == "model"


def test_slow_first_passes_do_not_keep_it_from_drafting(tiny: Synthesizer) -> None:
    """Kernels are loaded, caches are cold."""
    machine = Machine(kinds(model=GOOD), noise=lambda rng: 30.0)
    policy = Policy(tiny.bundle.manifest)
    machine.run(policy, 8)
    machine.noise = lambda rng: 1.0
    machine.run(policy, 1_000)
    assert machine.rounds["model"] > 950


def test_what_has_become_good_is_found_again(tiny: Synthesizer) -> None:
    machine = Machine(kinds(model=GOOD))
    policy = Policy(tiny.bundle.manifest)
    machine.run(policy, 5_000)
    machine.kinds = kinds(lookahead=GOOD)
    machine.run(policy, 60_000)
    assert policy.best(1, "coupled", 7).drafter == "lookahead"


def test_gamma_follows_costs_and_chances(tiny: Synthesizer) -> None:
    few, many = Machine(kinds(model=Kind(0.0001, 0.5))), Machine(kinds(model=Kind(0.00001, 0.9)), row_s=0.00001)
    gammas = []
    for machine in (few, many):
        policy = Policy(tiny.bundle.manifest)
        machine.run(policy, 1_000)
        chosen = policy.best(1, "coupled", 7)
        gammas.append(chosen.gamma)
        best = min(machine.pace(Choice("model", gamma)) for gamma in range(1, 8))
        assert machine.pace(chosen) < 1.05 * best
    assert gammas[0] < gammas[1] == 7


def test_a_full_batch_drafts_nothing_and_a_small_one_does(tiny: Synthesizer) -> None:
    machine = Machine(kinds(model=FAIR), row_s=0.0004)
    assert machine.best(1) < 0.95 * machine.pace(Choice("none", 0), 1)
    assert machine.best(12) == machine.pace(Choice("none", 0), 12)
    policy = Policy(tiny.bundle.manifest)
    for _ in range(60):
        machine.run(policy, 100, streams=1)
        machine.run(policy, 100, streams=12)
    assert policy.best(1, "coupled", 7).drafter == "model"
    assert policy.best(12, "coupled", 7) == Choice("none", 0)


def test_no_more_drafts_than_asked_for(tiny: Synthesizer) -> None:
    for most in (0, 1, 3):
        machine = Machine(kinds(model=GOOD))
        machine.run(Policy(tiny.bundle.manifest), 2_000, most=most)  # asserts
        assert ("model" in machine.rounds) == (most > 0)


def test_the_modes_are_learnt_apart(tiny: Synthesizer) -> None:
    """In ratio mode other drafts are accepted."""
    coupled, ratio = Machine(kinds(model=GOOD)), Machine(kinds(medusa=GOOD))
    policy = Policy(tiny.bundle.manifest)
    for _ in range(150):
        coupled.run(policy, 100)
        ratio.run(policy, 100, mode="ratio")
    assert policy.best(1, "coupled", 7).drafter == "model"
    assert policy.best(1, "ratio", 7).drafter == "medusa"


def test_a_look_ends_when_the_batch_changes(tiny: Synthesizer) -> None:
    """Whoever comes or goes meanwhile is not held against the others."""
    machine = Machine(kinds(model=GOOD))
    policy = Policy(tiny.bundle.manifest, look_share=0.5)
    rng = random.Random(3)
    for _ in range(3_000):
        machine.run(policy, rng.randint(1, 12), streams=rng.choice([1, 2, 6]))
    assert all(policy.best(streams, "coupled", 7).drafter == "model" for streams in (1, 2, 6))


def test_rounds_in_which_streams_draft_in_different_ways_are_held_against_nobody(tiny: Synthesizer) -> None:
    policy = Policy(tiny.bundle.manifest)
    made = Round(cast(Any, None), (0,), 7, 7, 0)
    for _ in range(2_000):
        chosen = policy.choose(2, "coupled", 7)
        named = Done(Choice("lookahead", 7), "coupled", made)
        policy.observe_round([Done(chosen, "coupled", made), named], 0.01)
        assert chosen.drafter == "model"
