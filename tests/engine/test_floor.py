"""Who is let in and who speaks when, in exact times."""

from __future__ import annotations

import pytest

from tests.engine.world import FRAME_S, World
from tts_spec.engine.scheduler import SchedulerOptions
from tts_spec.types import Budget


def test_the_first_chunk_is_one_frame_and_later_ones_grow_with_the_slack() -> None:
    world = World()
    listener = world.open("x" * 200, end=True)
    world.run(4.0)
    frames = [round(audio / FRAME_S) for audio in listener.audio]
    assert frames[0] == 1
    assert max(frames) == 12
    assert listener.over
    assert listener.gaps == []


def test_live_sessions_keep_within_the_look_ahead_and_a_file_does_not() -> None:
    world = World()
    live, file = world.open("x" * 4000, end=True), world.open("x" * 4000, end=True, live=False)
    for until in (9.0, 9.5, 10.0, 10.5):
        world.run(until)
        assert 1.0 < sum(live.audio) - (until - live.at[0]) < 3.5
    assert live.gaps == []
    assert sum(file.audio) > 60  # whatever time there was
    alone = World()
    only = alone.open("x" * 4000, end=True)
    for until in (9.0, 9.5, 10.0, 10.5):
        alone.run(until)
        assert 1.0 < sum(only.audio) - (until - only.at[0]) < 3.5
    assert len(alone.rounds) < 14 / FRAME_S  # and nothing is done meanwhile


def test_sessions_far_ahead_rest_and_go_on_together() -> None:
    """A round of one costs nearly as much as one of all: nobody does a round each time a frame of it has been played."""
    world = World(round_s=0.0005)
    listeners = [world.open("x" * 4000, end=True) for _ in range(6)]
    world.run(5.0)
    before = len(world.batches)
    world.run(20.0)
    sizes = world.batches[before:]
    assert sum(sizes) > 6 * 12 / FRAME_S
    assert sum(sizes) / len(sizes) > 4.5
    assert all(each.gaps == [] for each in listeners)


def test_who_comes_while_all_rest_is_heard_at_once_and_wakes_nobody() -> None:
    world = World(round_s=0.001)
    for _ in range(3):
        world.open("x" * 4000, end=True)
    world.run(1.0)
    came, before = world.clock.now, len(world.rounds)
    new = world.open("x" * 4, end=True)
    world.run(came + 0.02)
    assert new.at[0] - came < 0.003
    assert set(world.rounds[before:]) == {world.streams[-1]}


def test_c21_a_new_session_is_heard_before_anyone_comfortable_gets_more() -> None:
    world = World(round_s=0.004)
    old = [world.open("x" * 4000, end=True) for _ in range(4)]
    world.run(2.0)
    before = len(world.rounds)
    new = world.open("x" * 400, end=True)
    world.run(2.5)
    late = [stream for stream in world.rounds[before:] if stream is not world.streams[-1]]
    first = world.rounds[before:].index(world.streams[-1])
    assert first <= 4  # those whose round had begun
    assert new.at[0] - 2.0 < 0.15
    assert late  # they went on after it
    assert [each.gaps for each in [*old, new]] == [[]] * 5


def test_c24_only_as_many_as_keep_their_budgets_are_let_in_and_none_of_them_has_a_gap() -> None:
    world = World(round_s=0.004)  # 6.25 sessions fill it: 5 are 0.8
    listeners = [world.open("x" * 2000, end=True) for _ in range(8)]
    world.run(1.0)
    assert world.floor.active == 5
    assert world.floor.metrics()["sessions_queued"] == 3
    world.run(20.0)
    served = [each for each in listeners if each.error is None]
    assert len(served) == 5
    assert [each.gaps for each in served] == [[]] * 5


def test_who_waits_too_long_is_refused_with_the_time_to_ask_again() -> None:
    world = World(round_s=0.02, queue_wait_s=1.5)
    first, second = world.open("x" * 4000, end=True), world.open("x" * 4000, end=True)
    world.run(1.4)
    assert second.error is None
    world.run(1.6)
    assert second.error is not None
    assert second.error.code == "overloaded"
    assert second.error.retry_after_ms is not None
    assert 200 <= second.error.retry_after_ms <= 30_000
    assert f"try again in {second.error.retry_after_ms} ms" in second.error.message
    assert (world.floor.metrics()["sessions_refused_total"], world.floor.metrics()["sessions_queued"]) == (1, 0)
    assert world.freed == 1
    assert first.error is None


def test_who_waits_comes_in_when_another_leaves_and_speaks_what_came_meanwhile() -> None:
    world = World(round_s=0.02, queue_wait_s=5.0)
    first, second = world.open("x" * 4000, end=True), world.open("x" * 10)
    world.run(1.0)
    second.session.text("yyyyy")
    second.session.end()
    first.session.cancel()
    world.run(3.0)
    assert second.over
    assert sum(second.audio) == pytest.approx(15 * FRAME_S)
    assert second.error is None
    assert world.costs.first[-1][1] < 0.15  # the budget counts from when it was let in


def test_all_slots_taken_is_no_room_even_for_files() -> None:
    world = World(max_sessions=2)
    files = [world.open("x" * 500, end=True, live=False) for _ in range(3)]
    world.run(0.1)
    assert world.floor.active == 2
    world.run(10.0)
    assert all(each.over for each in files)


def test_a_budget_that_cannot_be_kept_is_refused_though_there_is_room() -> None:
    world = World(round_s=0.004)
    world.open("x" * 4000, end=True)
    greedy = world.open("x" * 100, end=True, budget=Budget(first_audio_ms=3.0))
    modest = world.open("x" * 100, end=True, budget=Budget(first_audio_ms=300.0))
    world.run(5.0)
    assert greedy.error is not None
    assert modest.over


def test_who_puts_up_with_gaps_gives_way_to_who_does_not() -> None:
    world = World(round_s=0.02, scheduler=SchedulerOptions(load_limit=10.0, max_batch=1))  # 1.6 times too much
    patient = world.open("x" * 120, end=True, budget=Budget(max_gap_ms=2000.0))
    strict = world.open("x" * 120, end=True)
    world.run(6.0)
    assert strict.gaps == []
    assert max(patient.gaps) <= 2.1
