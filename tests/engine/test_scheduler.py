"""Deadlines, drafts and load, on numbers alone."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_spec.engine.estimates import Acceptance, LinearCost
from tts_spec.engine.scheduler import GAMMAS, WORTH, RoundCosts, SchedulerOptions, Standing, next_batch

OPTIONS = SchedulerOptions(max_batch=4)
NOTHING = LinearCost(0.0, 0.0)


def round_costs(
    target: LinearCost, draft: LinearCost, acceptance: Acceptance, step: LinearCost = NOTHING
) -> RoundCosts:
    return RoundCosts(target, draft, step, acceptance)


def test_a_new_sessions_first_frame_comes_before_the_comfortable() -> None:
    standings = [Standing(1, True, 2.0), Standing(2, True, 0.2), Standing(3, False, 0.14)]
    assert next_batch(standings, OPTIONS) == [3, 2]


def test_without_anyone_waiting_all_hungry_take_part_least_slack_first() -> None:
    standings = [Standing(1, True, 2.0), Standing(2, True, 0.2), Standing(3, True, 3.5), Standing(4, True, -0.1)]
    assert next_batch(standings, OPTIONS) == [4, 2]
    assert next_batch([*standings[:3], Standing(4, True, 0.1)], OPTIONS) == [4, 2, 1]


def test_nobody_goes_on_before_one_has_little_left_and_then_all_do() -> None:
    resting = [Standing(1, True, 2.9), Standing(2, True, 1.6), Standing(3, True, 3.0)]
    assert next_batch(resting, OPTIONS) == []
    assert next_batch([*resting, Standing(4, True, 1.4)], OPTIONS) == [4, 2, 1]
    assert next_batch([*resting, Standing(4, False, 0.1)], OPTIONS) == [4]
    assert next_batch([*resting, Standing(4, True, 9.0, live=False)], OPTIONS) == [2, 1, 4]


def test_files_run_without_bound_but_after_the_live_ones() -> None:
    standings = [Standing(1, True, 900.0, live=False), Standing(2, True, 1.0), Standing(3, False, 0.1, live=False)]
    assert next_batch(standings, OPTIONS) == [2, 3, 1]
    assert next_batch([*standings, Standing(4, False, 0.1)], OPTIONS) == [4]


@given(
    st.lists(st.tuples(st.booleans(), st.floats(-1, 6, allow_nan=False), st.booleans()), max_size=30),
    st.integers(1, 8),
)
def test_nobody_urgent_is_left_out_for_somebody_less_urgent(rows: list[tuple[bool, float, bool]], size: int) -> None:
    standings = [Standing(key, heard, slack, live) for key, (heard, slack, live) in enumerate(rows)]
    options = SchedulerOptions(max_batch=size)
    chosen = next_batch(standings, options)
    assert len(set(chosen)) == len(chosen) <= size
    by_key = {each.key: each for each in standings}
    if chosen:
        worst = max(by_key[key].slack_s for key in chosen if by_key[key].live) if by_key[chosen[0]].live else -9
        starving = [s for s in standings if s.live and s.slack_s < 0 and s.key not in chosen]
        assert not starving or (len(chosen) == size and all(s.slack_s >= worst for s in starving))
    else:
        assert all(s.live and s.heard and s.slack_s >= options.refill_s for s in standings)


def test_cost_is_learnt_whatever_the_prior() -> None:
    cost = LinearCost(0.5, 0.5)
    rng = random.Random(1)
    for _ in range(2000):
        rows = rng.randint(1, 40)
        cost.observe(rows, 0.002 + 0.0003 * rows + rng.gauss(0, 1e-5))
    assert cost.of(1) == pytest.approx(0.0023, rel=0.05)
    assert cost.of(40) == pytest.approx(0.014, rel=0.05)


def test_what_a_row_costs_is_not_guessed_from_passes_that_are_all_alike() -> None:
    """A busy machine interrupts one pass in seven; nearly all have two rows. Least squares alone said 1 ms a row where 0.03 was true."""
    for seed in range(20):
        rng, cost = random.Random(seed), LinearCost(0.0005, 0.00005)
        for _ in range(600):
            rows = 2 if rng.random() < 0.98 else 3
            cost.observe(rows, (0.0006 + 0.00003 * rows) * (1 if rng.random() < 0.85 else rng.uniform(3, 9)))
        assert cost.of(6) < 1.6 * cost.of(2)


def test_cost_follows_a_change_and_never_goes_negative() -> None:
    cost = LinearCost(0.002, 0.0003)
    for _ in range(1000):
        cost.observe(1, 0.004)
    assert cost.of(1) == pytest.approx(0.004, rel=0.05)
    assert cost.of(0) >= 0
    steep = LinearCost(0.0, 0.001)
    for rows in (10, 20, 30) * 100:
        steep.observe(rows, 1e-4 * rows**2)
    assert steep.of(0) >= 0
    assert steep.of(1) >= 0


def test_one_slow_pass_is_forgiven_many_are_learnt() -> None:
    cost = LinearCost(0.0004, 0.00005)
    for rows in (1, 2, 4) * 10:
        cost.observe(rows, 0.0002 + 0.00005 * rows)
    cost.observe(1, 0.6)  # compiled at its first use
    assert cost.of(1) < 0.0004
    for _ in range(400):
        cost.observe(1, 0.002)
    assert cost.of(1) > 0.0015


def test_expected_tokens_follow_the_acceptance_by_place() -> None:
    acceptance = Acceptance()
    rng = random.Random(2)
    for _ in range(20_000):
        accepted = 0
        while accepted < 7 and rng.random() < 0.7:
            accepted += 1
        acceptance.observe(7, accepted, 7)
    expected = sum(0.7**i for i in range(8))
    assert acceptance.tokens(7) == pytest.approx(expected, rel=0.05)
    assert acceptance.tokens(0) == 1


def test_lines_that_end_early_cost_less_and_bring_less() -> None:
    """Half of the lines have two drafts, half have six, and every draft is right with 0.8."""
    acceptance = Acceptance()
    rng = random.Random(3)
    drafted, tokens = [], []
    for _ in range(20_000):
        drafted.append(rng.choice([2, 6]))
        accepted = 0
        while accepted < drafted[-1] and rng.random() < 0.8:
            accepted += 1
        tokens.append(1 + accepted)
        acceptance.observe(drafted[-1], accepted, 7)
    assert acceptance.drafts(7) == pytest.approx(sum(drafted) / len(drafted), rel=0.05)
    assert acceptance.tokens(7) == pytest.approx(sum(tokens) / len(tokens), rel=0.05)
    assert acceptance.drafts(2) == pytest.approx(2, rel=0.01)


def test_speculation_shrinks_and_stops_as_the_batch_grows() -> None:
    costs = round_costs(LinearCost(0.0018, 0.00025), LinearCost(0.0001, 0.00005), Acceptance(prior=0.75))
    gammas = [costs.best_gamma(sessions, 15) for sessions in (1, 2, 4, 8, 16, 64)]
    assert gammas[0] >= 3
    assert gammas == sorted(gammas, reverse=True)
    assert costs.pays(1, gammas[0])
    assert not costs.pays(64, gammas[-1])


def test_useless_drafts_turn_speculation_off() -> None:
    acceptance = Acceptance()
    for _ in range(500):
        acceptance.observe(4, 0, 4)
    costs = round_costs(LinearCost(0.002, 0.0001), LinearCost(0.0005, 0), acceptance)
    assert not costs.pays(1, costs.best_gamma(1, 15))


def test_drafts_must_pay_for_the_work_beside_the_passes_and_by_a_margin() -> None:
    """Where passes alone would leave a draft a small gain, what proposing and checking it costs decides."""
    target, draft, good = LinearCost(0.002, 0.0001), LinearCost(0.0001, 0.0), Acceptance(prior=0.9)
    assert round_costs(target, draft, good).pays(4, 3)
    assert not any(round_costs(target, draft, good, LinearCost(0.0001, 0.001)).pays(4, gamma) for gamma in GAMMAS)
    for share in (0.95 * (WORTH - 1), 1.2 * (WORTH - 1)):  # one draft brings so much for nothing
        rare = Acceptance(prior=share)
        free = round_costs(LinearCost(0.002, 0.0), LinearCost(0.0, 0.0), rare)
        assert free.pays(1, 1) == (share > WORTH - 1)


def test_gamma_keeps_within_what_is_asked_for() -> None:
    cheap = round_costs(LinearCost(0.01, 0.0), LinearCost(0.0, 0.0), Acceptance(prior=0.9))
    assert cheap.best_gamma(1, 4) == 4
    assert cheap.best_gamma(1, 1) == 1
    assert max(GAMMAS) == 15


def test_load_grows_with_sessions_and_falls_with_acceptance() -> None:
    target, draft = LinearCost(0.002, 0.0003), LinearCost(0.0004, 0.00005)

    def of(sessions: int, chance: float) -> float:
        return round_costs(target, draft, Acceptance(prior=chance)).load(sessions, 3, 175, 0.02)

    assert of(1, 0.5) < of(2, 0.5) < of(8, 0.5)
    assert of(4, 0.8) < of(4, 0.4)


@pytest.mark.parametrize(
    "fields", [{"max_batch": 0}, {"look_ahead_s": 0.0}, {"refill_s": 0.0}, {"comfort_s": -1.0}, {"load_limit": 0.0}]
)
def test_bad_options_are_named(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(fields))} is .*allowed: "):
        SchedulerOptions(**fields)  # type: ignore[arg-type]
