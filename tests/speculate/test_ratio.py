"""Ratio mode gives the target's distribution: chi-square and total variation on small chains, and planted bugs do not pass.

The models are first-order chains, so what the target would say after any decision is known exactly and 100,000 draws cost seconds. A
mutant is the round's own source with a few characters changed, or a drafter that breaks its contract.
"""

from __future__ import annotations

import functools
import inspect
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from models.lm_stream import StreamInput
from models.speech_lm import NO_TOKEN
from tests.speculate.streams import lm_stream, model_drafter, plain, random_text, run, small_lm
from tts_spec.engine.policy import Choice, Done, Policy
from tts_spec.speculate import ratio as module
from tts_spec.speculate.drafters import ModelDrafter, NoDrafter
from tts_spec.speculate.noise import UniformNoise, Use
from tts_spec.speculate.ratio import OddsDrafter, ratio_round
from tts_spec.speculate.round import Round, StreamState, speculative_round
from tts_spec.speculate.sampling import Distribution, Sampler, SamplingOptions
from tts_spec.speculate.script import Allowed, Script, ScriptState, Vocabulary
from tts_spec.synthesizer import Synthesizer

VOCABULARY = Vocabulary(codebooks=2, codebook_size=4)
OPTIONS = SamplingOptions(0.8, top_k=4)  # four of codebook 0's options and ADVANCE: p and q do not share their support
Proposal = list[tuple[int, Distribution]]


class Chain:
    """A model whose logits follow from the last input alone."""

    compiled = False

    def __init__(self, table: npt.NDArray[np.float32]) -> None:
        self._table = table  # [tokens + 1, codebook_size + 2]; the last row is for a phoneme input, NO_TOKEN
        self.features = np.zeros((VOCABULARY.advance, 1, 1), np.float32)

    def forward(
        self,
        inputs: Sequence[StreamInput],
        start: int,
        parents: Sequence[int] | None = None,
        added: npt.NDArray[np.float32] | None = None,
    ) -> npt.NDArray[np.float32]:
        return self._table[[item.token for item in inputs]]

    def keep(self, start: int, path: Sequence[int]) -> None:
        pass


@functools.cache
def tables() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Logits of the target and of a drafter that resembles it."""
    rng = np.random.default_rng(4)
    size = VOCABULARY.codebook_size
    target = rng.normal(0, 1.2, (VOCABULARY.advance + 1, size + 2)).astype(np.float32)
    drafter = target + rng.normal(0, 0.9, target.shape).astype(np.float32)
    for table in (target, drafter):
        table[:size, size:] = -np.inf  # after codebook 0 comes codebook 1, where nothing ends
    return target, drafter


def odds_after(table: npt.NDArray[np.float32], decision: int) -> Distribution:
    """Plain decoding's distribution after ``decision``."""
    token = NO_TOKEN if decision == VOCABULARY.advance else decision
    due = 1 if 0 <= token < VOCABULARY.codebook_size else 0
    inside = decision != VOCABULARY.advance and due == 0
    sampler = Sampler(OPTIONS, VOCABULARY, 0)
    return sampler.distribution(table[token], Allowed(True, inside, False), [StreamInput(token, 0, 0, due)])


@dataclass
class Outcome:
    decisions: list[int]
    first_tries: list[tuple[int, bool]]  # per round: the decision before it, whether its first draft was accepted


class Changed:
    """A model drafter whose proposal is changed."""

    name = "changed"

    def __init__(self, drafter: OddsDrafter, change: Callable[[Proposal], Proposal]) -> None:
        self._drafter = drafter
        self._change = change

    def propose_with_odds(self, state: StreamState, count: int) -> Proposal:
        return self._change(self._drafter.propose_with_odds(state, count))


def speak(
    count: int,
    round_function: Callable[..., Round] = ratio_round,
    change: Callable[[Proposal], Proposal] | None = None,
    seed: int = 1,
    gamma: int = 3,
) -> Outcome:
    """``count`` decisions or a few more."""
    target, small = (Chain(table) for table in tables())
    script = Script(VOCABULARY, [10**9] * count, [False] * count)
    sampler = Sampler(OPTIONS, VOCABULARY, seed)
    drafter = ModelDrafter(small, script, sampler, likely_enough=0.0)
    outcome = Outcome([], [])
    state = StreamState()
    while len(outcome.decisions) < count:
        before = outcome.decisions[-1] if outcome.decisions else VOCABULARY.advance
        done = round_function(target, Changed(drafter, change) if change else drafter, script, sampler, state, gamma)
        outcome.decisions += done.decisions
        if done.drafted:
            outcome.first_tries.append((before, done.accepted > 0))
        state = done.state
    return outcome


@dataclass
class Fit:
    """How well decisions follow the target, given the two before each."""

    z: float  # of the chi-square statistic, about standard normal when they do (Wilson and Hilferty 1931)
    variation: float  # total variation over its expectation under the target


def fit(decisions: Sequence[int]) -> Fit:
    counts: dict[tuple[int, int], npt.NDArray[np.float64]] = {}
    for two, one, decision in zip(decisions, decisions[1:], decisions[2:], strict=False):
        row = counts.setdefault((two, one), np.zeros(VOCABULARY.codebook_size + 2))
        row[VOCABULARY.option(decision)] += 1
    statistic = freedom = distance = usual = 0.0
    for (_, one), seen in counts.items():
        odds = odds_after(tables()[0], one)
        total = seen.sum()
        expected = total * odds
        if (seen[odds == 0] > 0).any():
            return Fit(math.inf, math.inf)
        distance += np.abs(seen - expected).sum()
        usual += np.sqrt(2 / np.pi * expected * (1 - odds)).sum()
        large = expected >= 5
        cells = [*zip(seen[large], expected[large], strict=True), (seen[~large].sum(), expected[~large].sum())]
        cells = [cell for cell in cells if cell[1] >= 1]
        statistic += sum((a - b) ** 2 / b for a, b in cells)
        freedom += max(0, len(cells) - 1)
    spread = 2 / (9 * freedom)
    return Fit(((statistic / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5, distance / usual)


def is_the_target(outcome: Outcome) -> bool:
    found = fit(outcome.decisions)
    return abs(found.z) < 4 and found.variation < 1.25


def mutant(old: str, new: str) -> Callable[..., Round]:
    source = inspect.getsource(ratio_round)
    assert source.count(old) == 1, "the round has changed: plant the bug anew"
    scope = dict(vars(module))
    exec(source.replace(old, new), scope)
    made: Callable[..., Round] = scope["ratio_round"]
    return made


def test_a_hundred_thousand_draws_follow_the_target() -> None:
    found = fit(speak(100_000).decisions)
    assert abs(found.z) < 3
    assert 0.8 < found.variation < 1.2


@pytest.mark.parametrize("gamma", [0, 1, 2, 7])
def test_every_gamma_follows_the_target(gamma: int) -> None:
    assert is_the_target(speak(10_000, gamma=gamma))


ROUND_MUTANTS = {
    "acceptance shares the drafts' noise": ("Use.ACCEPT", "Use.DRAFT"),
    "residual shares the drafts' noise": ("Use.RESIDUAL", "Use.DRAFT"),
    "residual shares acceptance's noise": ("Use.RESIDUAL", "Use.ACCEPT"),
    "residual not renormalised": (
        "draw(weights, uniform)",
        "min(int(weights.cumsum().searchsorted(uniform, side='right')), int(weights.nonzero()[0][-1]))",
    ),
    "resamples from the target, not from the residual": ("weights - drafts[accepted][1]", "weights"),
    "ratio upside down": ("uniform * q[option] < p[option]", "uniform * p[option] < q[option]"),
    "accepts whatever is likely enough": ("uniform * q[option] < p[option]", "uniform * q[option] < p[option] + 0.1"),
    "residual of the last row": ("weights = odds[accepted]", "weights = odds[len(drafts) - 1]"),
}


@pytest.mark.parametrize("name", ROUND_MUTANTS)
def test_planted_bug_is_caught(name: str) -> None:
    assert not is_the_target(speak(10_000, mutant(*ROUND_MUTANTS[name])))


def test_the_round_as_it_is_passes() -> None:
    assert is_the_target(speak(10_000, mutant("# Draft.", "# Unchanged.")))


def scored_in_a_coarser_type(proposal: Proposal) -> Proposal:
    """Odds rounded to powers of 4."""
    coarse = [(draft, np.where(q > 0, np.exp2(2 * np.round(np.log2(q.clip(1e-9)) / 2)), 0.0)) for draft, q in proposal]
    return [(draft, q / q.sum()) for draft, q in coarse]


def drafted_greedily(proposal: Proposal) -> Proposal:
    """The most likely option, scored as if it had been drawn."""
    return [(VOCABULARY.decision(int(q.argmax()), draft // VOCABULARY.codebook_size), q) for draft, q in proposal[:1]]


def dropped_for_what_it_is(proposal: Proposal) -> Proposal:
    """Whether a draft is verified depends on the draft itself: not causal."""
    options = [VOCABULARY.option(draft) for draft, _ in proposal]
    return proposal[: options.index(1)] if 1 in options else proposal


def cut_after_what_it_is(proposal: Proposal) -> Proposal:
    """Whether a draft is verified depends on those before it: causal."""
    options = [VOCABULARY.option(draft) for draft, _ in proposal]
    return proposal[: options.index(1) + 1] if 1 in options else proposal


@pytest.mark.parametrize("change", [scored_in_a_coarser_type, drafted_greedily, dropped_for_what_it_is])
def test_a_drafter_that_breaks_its_contract_is_caught(change: Callable[[Proposal], Proposal]) -> None:
    assert not is_the_target(speak(10_000, change=change))


def test_a_causal_choice_of_length_is_exact() -> None:
    assert is_the_target(speak(15_000, change=cut_after_what_it_is))


class Auto:
    """Another drafter and another number of drafts from round to round, as ``choose`` says; it is shown what came before, and
    ``peek``, what the first drafter would propose now."""

    name = "auto"

    def __init__(self, choose: Callable[[StreamState, Callable[[], Proposal]], tuple[int, int]]) -> None:
        target, small = tables()
        script, sampler = Script(VOCABULARY, [10**9] * 50_000, [False] * 50_000), Sampler(OPTIONS, VOCABULARY, 1)
        other = np.where(np.isfinite(small), -small, small).astype(np.float32)
        self._drafters = [
            ModelDrafter(Chain(table), script, sampler, likely_enough=0.0) for table in (small, other, target)
        ]
        self._choose = choose

    def propose_with_odds(self, state: StreamState, count: int) -> Proposal:
        drafter, gamma = self._choose(state, lambda: self._drafters[0].propose_with_odds(state, count))
        return self._drafters[drafter].propose_with_odds(state, gamma)


def by_the_past(state: StreamState, peek: Callable[[], Proposal]) -> tuple[int, int]:
    """What was said last decides: drafts of the round before among it, right ones and wrong."""
    last = state.inputs[-1].token
    return (last + state.position) % 3, (0, 1, 2, 3)[last % 4]


def by_the_draft(state: StreamState, peek: Callable[[], Proposal]) -> tuple[int, int]:
    """Another drafter where the first one's draft does not please: the decision has seen the draft."""
    return (0, 3) if VOCABULARY.option(peek()[0][0]) != 1 else (1, 3)


def no_more_by_the_draft(state: StreamState, peek: Callable[[], Proposal]) -> tuple[int, int]:
    """The counter-example of DSpark: whether to draft depends on the draft."""
    return 0, 3 if VOCABULARY.option(peek()[0][0]) != 1 else 0


def by_the_noise(state: StreamState, peek: Callable[[], Proposal]) -> tuple[int, int]:
    """The noise of the draft alone is enough."""
    noise = Sampler(OPTIONS, VOCABULARY, 1).uniform.of_round(Use.DRAFT, state.position, 1)[0]
    return (0, 3) if noise < 0.5 else (1, 0)


@pytest.mark.parametrize("choose", [by_the_past, by_the_draft, no_more_by_the_draft, by_the_noise])
def test_a_policy_is_exact_if_it_is_causal_and_caught_if_not(
    choose: Callable[[StreamState, Callable[[], Proposal]], tuple[int, int]],
) -> None:
    auto = Auto(choose)
    outcome = speak(15_000, lambda target, _, *rest: ratio_round(target, auto, *rest))
    assert is_the_target(outcome) == (choose is by_the_past)


def test_the_policy_of_the_product_keeps_the_distribution(tiny: Synthesizer) -> None:
    """It looks often here, and learns from what it saw: the choice depends on rounds before, their rejected drafts included."""
    policy = Policy(tiny.bundle.manifest, look_share=0.9)
    names = [name for name in tiny.bundle.manifest.drafter_names if name != "none"]
    now = Choice("none", 0)
    auto = Auto(lambda state, peek: (names.index(now.drafter) % 3 if now.gamma else 0, now.gamma))
    used: set[str] = set()

    def auto_round(target: Chain, _: object, script: Script, sampler: Sampler, state: StreamState, gamma: int) -> Round:
        nonlocal now
        now = policy.choose(1, "ratio", gamma)
        used.add(now.drafter)
        done = ratio_round(target, auto, script, sampler, state, gamma)
        # A round is as long as its drafts, rejected ones above all: the worst for a policy that would not be causal.
        policy.observe_round(
            [Done(now, "ratio", done)], 0.001 * (1 + done.drafted + 3 * (done.drafted - done.accepted))
        )
        return done

    assert is_the_target(speak(15_000, auto_round))
    assert used == {"none", *names}


@pytest.mark.parametrize(("old", "accepted"), [("# Draft.", 0), ("uniform * q[option] < p[option]", 1)])
def test_a_draft_of_chance_0_is_never_accepted(old: str, accepted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even when the noise is 0; with ``<=`` it would be."""
    monkeypatch.setattr(UniformNoise, "of_round", lambda self, use, start, count: np.full(count, 0.0))
    table = tables()[0].copy()
    table[NO_TOKEN, 2] = -np.inf
    script = Script(VOCABULARY, [9], [False])
    sampler = Sampler(OPTIONS, VOCABULARY, 1)

    class Fixed:
        name = "fixed"

        def propose_with_odds(self, state: StreamState, count: int) -> Proposal:
            return [(2, np.array([0.25, 0.25, 0.25, 0.25, 0, 0]))]

    changed = mutant(old, old.replace("<", "<="))
    done = changed(Chain(table), Fixed(), script, sampler, StreamState(), 1)
    assert done.accepted == accepted


def test_acceptance_is_what_p_and_q_share() -> None:
    """Sum of min(p, q), more than coupled mode can have (Daliri et al. 2024)."""
    tries = speak(30_000).first_tries
    shared = [np.minimum(*(odds_after(table, before) for table in tables())).sum() for before, _ in tries]
    expected, spread = np.sum(shared), np.sqrt(np.sum([share * (1 - share) for share in shared]))
    assert abs(sum(accepted for _, accepted in tries) - expected) < 4 * spread
    coupled = [accepted for _, accepted in speak(10_000, speculative_round).first_tries]
    assert np.mean(coupled) < expected / len(tries)


def test_without_temperature_it_says_what_plain_decoding_says() -> None:
    """So a repetition penalty that has not seen the drafts is caught here."""
    text = random_text(random.Random(2), 16)
    options = SamplingOptions(0.0, repetition_penalty=2.0)
    expected = plain(text, options, 3).decisions
    blind = mutant("each.script), each.inputs)", "each.script), state.inputs[:-1] + each.inputs[-1:])")
    for chosen in (ratio_round, blind):
        outcome = run(text, model_drafter, 15, options, 3, round_function=chosen, limit=len(expected) + 1)  # type: ignore[arg-type]
        assert (outcome.decisions == expected) == (chosen is ratio_round)


def test_a_round_is_a_function_of_its_state_and_the_seed() -> None:
    assert speak(500, seed=7).decisions == speak(500, seed=7).decisions
    assert speak(500, seed=7).decisions != speak(500, seed=8).decisions


def test_real_models_with_history_follow_the_target() -> None:
    """The surprise of what is said is, in the mean, the entropy of what one pass over all of it expects."""
    text = random_text(random.Random(5), 40)
    options = SamplingOptions(0.9, top_k=20, top_p=0.97, repetition_penalty=2.0)
    outcome = run(text, model_drafter, 7, options, 6, round_function=ratio_round)  # type: ignore[arg-type]
    stream = lm_stream(small_lm())
    stream.extend(text.windows)
    rows = stream.forward(outcome.inputs()[:-1], 0)
    state, surprise, variance = StreamState(), 0.0, 0.0
    for row, decision in zip(rows, outcome.decisions, strict=True):
        p = outcome.sampler.distribution(row, outcome.script.allowed(state.script), state.inputs)
        logs = np.log(np.where(p > 0, p, 1.0))
        entropy = -(p * logs).sum()
        assert p[outcome.script.vocabulary.option(decision)] > 0
        surprise += -logs[outcome.script.vocabulary.option(decision)] - entropy
        variance += (p * logs**2).sum() - entropy**2
        state = state.after(outcome.script, decision)
    assert len(outcome.decisions) > 500
    assert abs(surprise) < 4 * variance**0.5


def test_the_text_may_end_with_an_accepted_draft() -> None:
    """Then the round has no decision of the target's own, and the next one waits."""
    text = random_text(random.Random(5), 1)
    free = []
    for seed in range(30):
        outcome = run(text, model_drafter, 7, SamplingOptions(0.9), seed, round_function=ratio_round)  # type: ignore[arg-type]
        last = outcome.rounds[-1]
        assert last.state.script == ScriptState(phoneme=len(text.caps))
        assert last.state.position == len(outcome.decisions)
        free.append(len(last.decisions) - last.accepted)
    assert 0 in free


def test_nothing_drafted_is_plain_sampling() -> None:
    target = Chain(tables()[0])
    script, sampler = Script(VOCABULARY, [9], [False]), Sampler(OPTIONS, VOCABULARY, 1)
    done = ratio_round(target, NoDrafter(), script, sampler, StreamState(), 0)
    assert (done.drafted, done.accepted, len(done.decisions), done.state.position) == (0, 0, 1, 1)


def test_noise_of_the_uses_is_independent() -> None:
    noise = UniformNoise(3, 0)
    drawn = {use: np.concatenate([noise.of_round(use, start, 8) for start in range(2000)]) for use in Use}
    for use, values in drawn.items():
        assert values.min() >= 0
        assert values.max() < 1
        assert abs(values.mean() - 0.5) < 4 / math.sqrt(12 * len(values))
        again = UniformNoise(3, 0).of_round(use, 5, 8)
        assert np.array_equal(again, noise.of_round(use, 5, 8))
        assert not np.isin(again[1:], noise.of_round(use, 6, 8)).any()  # the same positions, drafted again
    correlations = np.corrcoef([drawn[use] for use in Use]) - np.eye(len(Use))
    assert np.abs(correlations).max() < 4 / math.sqrt(len(values))
