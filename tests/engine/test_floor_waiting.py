"""Sessions that wait for text or for their reader, and how they leave, in exact times."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.world import FRAME_S, World
from tts_spec.engine.options import EngineOptions


def test_half_a_clause_is_held_back_then_spoken_by_whole_words_then_all_of_it() -> None:
    world = World()
    listener = world.open("one two thr", max_wait_ms=400.0)
    world.run(0.39)
    assert listener.at == []
    world.run(0.5)
    assert sum(listener.audio) == pytest.approx(8 * FRAME_S)
    dry = world.clock.now
    world.run(5.0)
    assert sum(listener.audio) == pytest.approx(11 * FRAME_S)
    times = world.streams[0].hurried
    assert [whole for _, whole in times] == [False, False, True]
    assert times[0][0] == pytest.approx(0.4, abs=0.01)
    assert times[2][0] == pytest.approx(dry + 0.8 - 0.08, abs=0.1)
    assert len(world.rounds) == 11  # it has cost nothing but its frames


def test_the_rest_of_the_clause_in_time_is_not_hurried() -> None:
    world = World()
    listener = world.open("one two thr", max_wait_ms=400.0)
    world.run(0.3)
    listener.session.text("ee.")
    world.run(2.0)
    assert world.streams[0].hurried == []
    assert sum(listener.audio) == pytest.approx(14 * FRAME_S)


def test_a_session_that_waits_for_text_costs_nothing_and_wakes_at_once() -> None:
    world = World()
    listener = world.open("Hello.")
    world.run(30.0)
    assert len(world.rounds) == 6
    listener.session.text("And more of it.")
    world.run(30.5)
    assert len(world.rounds) == 21
    assert listener.at[-1] > 30.0
    frames = [round(audio / FRAME_S) for at, audio in zip(listener.at, listener.audio, strict=True) if at > 30]
    assert frames[0] == 1  # a listener waits for it: one frame at once
    assert world.floor.metrics()["slack_min_seconds"] == 0


def test_an_idle_session_gives_its_slot_to_another_and_gets_one_again() -> None:
    world = World(max_sessions=1, idle_s=5.0, queue_wait_s=60.0)
    idle, other = world.open("Hello."), world.open("x" * 100, end=True)
    world.run(4.9)
    assert other.at == []
    world.run(5.1)
    assert world.streams[0].parked
    assert world.floor.metrics()["sessions_parked"] == 1
    world.run(5.2)
    idle.session.text("And more.")
    world.run(9.0)
    assert other.over
    assert not world.streams[0].parked
    assert sum(idle.audio) == pytest.approx(15 * FRAME_S)
    idle.session.cancel()
    world.run(31.0)
    assert world.freed == 2


def test_a_parked_session_can_leave_and_half_a_clause_wakes_it_in_time() -> None:
    world = World(idle_s=1.0)
    one, two = world.open("Hello."), world.open("Hello.", max_wait_ms=400.0)
    world.run(2.0)
    assert world.floor.active == 0
    one.session.cancel()
    two.session.text("and th")
    world.run(5.0)
    assert world.freed == 1
    assert sum(two.audio) == pytest.approx(12 * FRAME_S)


def test_text_that_comes_late_is_not_the_engines_debt() -> None:
    """After a silence of its own a session has the rights of a new one, not those of one starved for half a minute."""
    world = World(round_s=0.004)
    late = world.open("Hello.")
    world.run(30.0)
    others = [world.open("x" * 4000, end=True) for _ in range(4)]
    world.run(31.0)
    late.session.text("x" * 400 + ".")
    world.run(40.0)
    assert [each.gaps for each in others] == [[]] * 4
    assert len(late.gaps) == 1  # its own


def test_i61_a_slow_reader_stops_its_own_session_and_no_other_and_goes_on_where_it_was() -> None:
    world = World(max_outstanding=4, stall_s=10.0)
    slow, quick = world.open("x" * 400, end=True, slow=True), world.open("x" * 400, end=True)
    world.run(5.0)
    assert len(slow.at) == 4
    assert quick.gaps == []
    slow.slow = False
    slow.session.consumed(4)
    world.run(15.0)
    assert slow.over
    assert sum(slow.audio) == pytest.approx(400 * FRAME_S)


def test_a_reader_that_never_reads_is_ended_with_a_clear_code() -> None:
    world = World(max_outstanding=4, stall_s=10.0)
    slow = world.open("x" * 4000, end=True, slow=True)
    world.run(9.9)
    assert slow.error is None
    world.run(10.3)
    assert slow.error is not None
    assert slow.error.code == "slow_reader"
    assert world.floor.active == 0
    assert world.freed == 1


def test_e41_cancel_takes_effect_before_the_next_round() -> None:
    world = World()
    listener = world.open("x" * 4000, end=True)
    world.run(0.1)
    done = len(world.rounds)
    listener.session.cancel()
    world.run(0.2)
    assert len(world.rounds) <= done + 1
    assert world.streams[0].closed
    assert world.floor.active == 0


def test_bad_text_ends_its_session_even_if_it_waited_to_be_admitted() -> None:
    world = World(round_s=0.02)
    first = world.open("x" * 50, end=True)
    bad = world.open("bad")
    world.run(10.0)
    assert first.over
    assert bad.error is not None
    assert bad.error.code == "internal"
    assert world.floor.sessions == []
    assert world.freed == 2


@pytest.mark.parametrize(
    "fields", [{"max_sessions": 0}, {"max_queued": -1}, {"queue_wait_s": -1.0}, {"stall_s": float("nan")}]
)
def test_bad_options_are_named(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(fields))} is .*allowed: "):
        EngineOptions(**fields)
