"""The policies of the engine, with a clock of the tests' own and streams that speak by arithmetic: every time here is exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from tts_spec.engine.floor import Floor
from tts_spec.engine.governor import Governor
from tts_spec.engine.local_session import LocalSession
from tts_spec.engine.options import EngineOptions
from tts_spec.engine.port import Event
from tts_spec.engine.scheduler import RAMP, SchedulerOptions
from tts_spec.types import Budget, Chunk, SpeakOptions, SpeechError

RATE = 24_000
FRAME_S = 0.025


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Words:
    """A stream that says a frame a round; a character is a frame. A "." ends a clause, text without one is held back."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._held = ""
        self._frames = 0
        self._made = 0
        self._ended = False
        self.read_chars = 0
        self.most_frames = 0
        self.holding = False
        self._chunks = 0
        self.gamma = 0
        self.plan = None
        self.finished = False
        self.hurried: list[tuple[float, bool]] = []
        self.closed = self.parked = False

    def text(self, piece: str) -> None:
        if piece == "bad":
            raise ValueError(piece)
        clauses, dot, self._held = (self._held + piece).rpartition(".")
        self._frames += len(clauses + dot)

    def flush(self) -> None:
        self._frames += len(self._held)
        self._held = ""

    def end(self) -> None:
        self.flush()
        self._ended = True

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def hurry(self, whole: bool) -> None:
        self.hurried.append((self._world.clock.now, whole))
        if whole:
            self.flush()
        else:
            words, space, self._held = self._held.rpartition(" ")
            self._frames += len(words + space)

    @property
    def _wanted(self) -> int:
        return min(RAMP[min(self._chunks, len(RAMP) - 1)], self.most_frames)

    @property
    def due(self) -> bool:
        return self._made + 1 >= self._wanted

    @property
    def ready(self) -> bool:
        return not self.finished and (self._frames > 0 or self._ended)

    def step(self) -> Chunk | None:
        self._world.stepped(self)
        if self._frames:
            self._frames -= 1
            self._made += 1
        self.finished = self._ended and not self._frames
        if (self.holding or self._made < self._wanted) and self._frames:
            return None
        pcm = np.zeros(round(self._made * FRAME_S * RATE), np.float32)
        self._made = 0
        self._chunks += 1
        return Chunk(pcm, RATE, stats=cast(Any, "stats") if self.finished else None)

    def take_round(self) -> None: ...

    def park(self) -> None:
        self.parked = True

    def unpark(self) -> None:
        self.parked = False

    def close(self) -> None:
        self.closed = True


class Costs:
    """What the engine is told about itself: ``round_s`` a session and round; a frame a round."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.first: list[tuple[int, float]] = []

    def load(self, sessions: int) -> float:
        return sessions * self._world.round_s / FRAME_S

    def first_audio_s(self, sessions: int) -> float:
        return sessions * self._world.round_s

    def gamma(self, *_: object) -> int:
        return 0

    def observe_pass(self, _: object) -> None: ...

    def observe_round(self, *_: object) -> None: ...

    def observe_first_audio(self, sessions: int, seconds: float) -> None:
        self.first.append((sessions, seconds))

    def metrics(self) -> dict[str, float]:
        return {}


class Listener:
    """Takes every chunk at once, unless it is ``slow``."""

    def __init__(self, world: World, slow: bool = False) -> None:
        self.world = world
        self.slow = slow
        self.at: list[float] = []
        self.audio: list[float] = []
        self.error: SpeechError | None = None
        self.over = False
        self.session: LocalSession

    def __call__(self, event: Event) -> None:
        if isinstance(event, SpeechError):
            self.error = event
            return
        if len(event.pcm):
            self.at.append(self.world.clock.now)
            self.audio.append(len(event.pcm) / RATE)
        self.over = self.over or event.stats is not None
        if not self.slow:
            self.session.consumed()

    @property
    def gaps(self) -> list[float]:
        """Seconds for which a player that began with the first chunk had nothing to play, one entry a gap."""
        found, played_out = [], self.at[0] if self.at else 0.0
        for at, audio in zip(self.at, self.audio, strict=True):
            if at > played_out + 1e-9:
                found.append(at - played_out)
                played_out = at
            played_out += audio
        return found


class World:
    """A floor, its clock, and its streams; a session's share of a round takes ``round_s``."""

    def __init__(self, round_s: float = 0.002, **options: Any) -> None:
        self.clock = Clock()
        self.round_s = round_s
        self.streams: list[Words] = []
        self.rounds: list[Words] = []
        self.costs = Costs(self)
        self.inbox: list[Callable[[], None]] = []
        self.freed = 0
        self.floor = Floor(
            EngineOptions(**options), cast(Governor, self.costs), lambda _: cast(Any, self._make()), FRAME_S, self.clock
        )

    def _make(self) -> Words:
        self.streams.append(Words(self))
        return self.streams[-1]

    def stepped(self, stream: Words) -> None:
        self.clock.now += self.round_s
        self.rounds.append(stream)

    def _free(self) -> None:
        self.freed += 1

    def open(self, text: str = "", *, end: bool = False, slow: bool = False, **fields: Any) -> Listener:
        listener = Listener(self, slow)
        session = LocalSession(
            self.inbox.append,
            SpeakOptions(**fields),
            listener,
            len(self.streams) + 1000 * self.freed + id(listener),
            10**6,
            self._free,
        )
        listener.session = session
        self.floor.enter(session)
        if text:
            session.text(text)
        if end:
            session.end()
        return listener

    def run(self, until: float) -> None:
        """Turn after turn, waiting as long as the floor says or until a command comes."""
        while self.clock.now < until:
            wait_s = self.floor.turn()
            if self.inbox:
                commands, self.inbox[:] = list(self.inbox), []
                for command in commands:
                    command()
            elif wait_s is None:
                self.clock.now = until
            else:
                self.clock.now = min(self.clock.now + wait_s, max(until, self.clock.now))


def test_the_first_chunk_is_one_frame_and_later_ones_grow_with_the_slack() -> None:
    world = World()
    listener = world.open("x" * 200, end=True)
    world.run(4.0)
    frames = [round(audio / FRAME_S) for audio in listener.audio]
    assert frames[0] == 1
    assert max(frames) == 12
    assert listener.over
    assert listener.gaps == []


def test_a_lone_live_session_keeps_the_look_ahead_and_a_file_does_not() -> None:
    world = World()
    live, file = world.open("x" * 4000, end=True), world.open("x" * 4000, end=True, live=False)
    world.run(10.0)
    ahead = sum(live.audio) - (10.0 - live.at[0])
    assert 2.5 < ahead < 3.5
    assert live.gaps == []
    assert sum(file.audio) > 60  # whatever time there was
    alone = World()
    only = alone.open("x" * 4000, end=True)
    alone.run(10.0)
    assert 2.5 < sum(only.audio) - (10.0 - only.at[0]) < 3.5
    assert len(alone.rounds) < 14 / FRAME_S  # and nothing is done meanwhile


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
