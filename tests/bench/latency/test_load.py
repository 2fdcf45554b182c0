"""Who speaks when, in virtual time: a target that takes as long as it is told."""

from __future__ import annotations

import asyncio
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.virtual_time import VirtualTime, finish
from tts_spec.bench.latency.capacity import find_capacity
from tts_spec.bench.latency.load import GRACE_S, REST_S, Script, Span, closed_loop, open_loop, poisson
from tts_spec.bench.latency.playback import SECOND
from tts_spec.bench.latency.utterance import Leave, Outcome, Request, Utterance

FRAME = (8000 * np.sin(np.arange(600))).astype("<i2").tobytes()  # 25 ms


class Clockwork:
    """Speaks ``audio_s`` of audio at once, ``first_s`` after the text; with ``hangs`` it never ends."""

    leaves = (Leave.CANCEL,)

    def __init__(self, loop: VirtualTime, audio_s: float = 1.0, first_s: float = 0.1, hangs: bool = False) -> None:
        self.loop = loop
        self.audio_s = audio_s
        self.first_s = first_s
        self.hangs = hangs
        self.refuse = False
        self.active = self.most = 0

    async def close(self) -> None: ...

    async def speak(self, utterance: Utterance) -> None:
        self.active += 1
        self.most = max(self.most, self.active)
        try:
            utterance.sent_ns = self.loop.ns()
            if self.refuse:
                utterance.fail("overloaded", refused=True)
                return
            await asyncio.sleep(self.first_s)
            utterance.hear(self.loop.ns(), FRAME * round(self.audio_s * 40))
            if self.hangs:
                await asyncio.sleep(1000)
            utterance.ended_ns = self.loop.ns()
            utterance.outcome = Outcome.LEFT if utterance.request.leave else Outcome.COMPLETE
        finally:
            self.active -= 1


def script(**fields: object) -> Script:
    return Script(["one", "two", "three"], Request(""), **fields)  # type: ignore[arg-type]


def test_a_listener_begins_again_when_all_is_played(virtual: VirtualTime) -> None:
    target = Clockwork(virtual, audio_s=1.0, first_s=0.1)
    heard = finish(virtual, closed_loop(target, script(), 1, Span(4.5), clock=virtual.ns))
    begun = [each.opened_ns / SECOND for each in heard.everything]
    assert begun == pytest.approx([0, 1.1, 2.2, 3.3, 4.4])  # 0.1 s to the first audio, 1 s of audio, at once the next
    assert [each.request.text for each in heard.everything] == ["one", "two", "three", "one", "two"]
    assert [each.request.seed for each in heard.everything] == [0, 1, 2, 3, 4]


def test_a_listener_who_leaves_begins_again_at_once(virtual: VirtualTime) -> None:
    leaving = script(leave_share=1.0)
    heard = finish(virtual, closed_loop(Clockwork(virtual), leaving, 1, Span(0.95), clock=virtual.ns))
    assert [each.opened_ns / SECOND for each in heard.everything] == pytest.approx([0.1 * n for n in range(10)])


def test_who_is_refused_rests(virtual: VirtualTime) -> None:
    target = Clockwork(virtual)
    target.refuse = True
    heard = finish(virtual, closed_loop(target, script(), 1, Span(1.9), clock=virtual.ns))
    assert [each.opened_ns / SECOND for each in heard.everything] == pytest.approx([0, REST_S, 2 * REST_S, 3 * REST_S])


def test_listeners_begin_one_by_one_and_the_warm_up_is_not_measured(virtual: VirtualTime) -> None:
    target = Clockwork(virtual, first_s=3.0)
    heard = finish(virtual, closed_loop(target, script(), 4, Span(20, warmup_s=2), clock=virtual.ns))
    assert [each.opened_ns / SECOND for each in heard.everything[:2]] == pytest.approx([0, 0.5])
    assert {each.session for each in heard.everything} == {0, 1, 2, 3}
    assert all(each.due_ns >= 2 * SECOND for each in heard.measured)
    assert 0 < len(heard.measured) < len(heard.everything)
    assert target.most == 4


def test_when_nobody_begins_after_the_warm_up_everybody_is_measured(virtual: VirtualTime) -> None:
    heard = finish(virtual, closed_loop(Clockwork(virtual, 60.0), script(), 2, Span(5, 2), clock=virtual.ns))
    assert heard.measured == heard.everything
    assert len(heard.everything) == 2


def test_a_load_ends_after_so_many_utterances(virtual: VirtualTime) -> None:
    heard = finish(virtual, closed_loop(Clockwork(virtual), script(), 3, Span(100, utterances=7), clock=virtual.ns))
    assert len(heard.everything) == 7


def test_who_hangs_is_dropped_and_stays_unfinished(virtual: VirtualTime) -> None:
    target = Clockwork(virtual, hangs=True)
    heard = finish(virtual, closed_loop(target, script(), 2, Span(5), clock=virtual.ns))
    assert [each.outcome for each in heard.everything] == [Outcome.UNFINISHED] * 2
    assert virtual.now == pytest.approx(5 + GRACE_S)
    assert target.active == 0


def test_a_fault_of_the_harness_is_not_hidden(virtual: VirtualTime) -> None:
    class Broken(Clockwork):
        async def speak(self, utterance: Utterance) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        finish(virtual, closed_loop(Broken(virtual), script(), 1, Span(1), clock=virtual.ns))


def test_the_open_loop_does_not_wait_for_anybody(virtual: VirtualTime) -> None:
    target = Clockwork(virtual, first_s=5.0)
    heard = finish(virtual, open_loop(target, script(), 4.0, Span(10, warmup_s=2), clock=virtual.ns))
    due = poisson(4.0, 12, 0)
    assert [each.opened_ns / SECOND for each in heard.everything] == pytest.approx(due)
    assert len(heard.measured) == sum(each >= 2 for each in due)
    assert target.most > 10


def test_poisson_arrivals() -> None:
    times = poisson(50.0, 100.0, 7)
    assert times == poisson(50.0, 100.0, 7) != poisson(50.0, 100.0, 8)
    assert len(times) == pytest.approx(5000, rel=0.05)
    gaps = np.diff(times)
    # Exponential: mean and standard deviation are the same.
    assert statistics.mean(gaps) == pytest.approx(0.02, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(0.02, rel=0.08)


def test_the_share_that_leaves() -> None:
    requests = [script(leave_share=0.2, seed=3).request(k) for k in range(1000)]
    leaves = [each.leave for each in requests if each.leave]
    assert len(leaves) == pytest.approx(200, abs=40)
    assert leaves.count(Leave.CANCEL) == pytest.approx(len(leaves) / 2, abs=25)
    assert requests[:50] == [script(leave_share=0.2, seed=3).request(k) for k in range(50)]
    assert not any(script().request(k).leave for k in range(100))


def test_text_by_the_word() -> None:
    pieces = Request("Hello  there,\nyou.", words_per_s=20).pieces()
    assert pieces == [(0, "Hello "), (0.05, "there, "), (0.1, "you.")]
    assert Request("Hello  there.").pieces() == [(0, "Hello  there.")]


@given(capacity=st.integers(0, 40), most=st.integers(1, 40))
@settings(deadline=None, max_examples=80)
def test_capacity_is_found(capacity: int, most: int) -> None:
    tried: list[int] = []

    async def holds(n: int) -> bool:
        tried.append(n)
        return n <= capacity

    assert asyncio.run(find_capacity(holds, most)) == min(capacity, most)
    assert len(set(tried)) == len(tried) <= 14
    assert all(1 <= n <= most for n in tried)
