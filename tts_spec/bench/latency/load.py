"""Who speaks when: live listeners one utterance after another, or arrivals at random times. Knows utterances and a clock, no server."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tts_spec.bench.latency.playback import SECOND
from tts_spec.bench.latency.target import Clock, Target, sleep_until
from tts_spec.bench.latency.utterance import Leave, Outcome, Request, Utterance

GRACE_S = 20.0  # after the time is up, for what has begun
REST_S = 0.5  # of a listener who was refused


@dataclass(frozen=True, slots=True)
class Script:
    """What is said: ``texts`` in turn, everything else as in ``like``; a share of listeners leaves early.

    ``request(k)`` is the same whatever was asked before, so every setting hears the same texts, seeds and leavings.
    """

    texts: Sequence[str]
    like: Request
    seed: int = 0
    leave_share: float = 0.0
    leaves: Sequence[Leave] = (Leave.CANCEL, Leave.DISCONNECT)
    leave_within_s: float = 1.5  # of the first audio
    protocols: Sequence[str] = ()  # each text is spoken over all of them, one after another

    def request(self, k: int) -> Request:
        """The k-th utterance."""
        number, turn = (k, 0) if not self.protocols else divmod(k, len(self.protocols))
        rng = random.Random(f"{self.seed} {number}")
        request = replace(self.like, text=self.texts[number % len(self.texts)], seed=number)
        if self.protocols:  # the order changes from text to text: nobody is always first
            request = replace(request, protocol=self.protocols[(turn + number) % len(self.protocols)])
        if rng.random() >= self.leave_share:
            return request
        return replace(request, leave=rng.choice(self.leaves), leave_after_s=rng.uniform(0, self.leave_within_s))


@dataclass(frozen=True, slots=True)
class Span:
    """How long: ``warmup_s`` in which the load builds up, unmeasured, then ``seconds``; at most ``utterances`` in all."""

    seconds: float
    warmup_s: float = 0.0
    utterances: int | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of a load. ``measured`` began after the warm-up; when the texts are so long that none did, it is everything."""

    began_ns: int
    everything: tuple[Utterance, ...]
    measured: tuple[Utterance, ...]


class _Run:
    """One load on its way."""

    def __init__(
        self, target: Target, script: Script, span: Span, clock: Clock, finished: Callable[[Utterance], object]
    ) -> None:
        self._target = target
        self._script = script
        self._clock = clock
        self._finished = finished
        self._limit = span.utterances
        self.began_ns = clock()
        self.warm_ns = self.began_ns + round(span.warmup_s * SECOND)
        self.end_ns = self.warm_ns + round(span.seconds * SECOND)
        self.utterances: list[Utterance] = []

    @property
    def over(self) -> bool:
        """No further utterance may begin."""
        return self._clock() >= self.end_ns or (self._limit is not None and len(self.utterances) >= self._limit)

    async def speak(self, session: int, due_ns: int) -> Utterance:
        request = self._script.request(len(self.utterances))
        utterance = Utterance(request, session, due_ns, self._clock())
        self.utterances.append(utterance)
        await self._target.speak(utterance)
        self._finished(utterance)
        return utterance

    async def heard(self, listeners: set[asyncio.Task[None]]) -> Heard:
        """Wait for the listeners; who is not done within the grace time is dropped, and stays unfinished."""
        rest = (self.end_ns - self._clock()) / SECOND + GRACE_S
        done, late = await asyncio.wait(listeners, timeout=max(rest, 0)) if listeners else (set(), set())
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for task in done:
            task.result()  # raises what went wrong in the harness itself
        everything = tuple(self.utterances)
        measured = tuple(each for each in everything if each.due_ns >= self.warm_ns)
        return Heard(self.began_ns, everything, measured or everything)


async def closed_loop(
    target: Target,
    script: Script,
    sessions: int,
    span: Span,
    *,
    live: bool = True,
    clock: Clock = time.perf_counter_ns,
    finished: Callable[[Utterance], object] = lambda _: None,
) -> Heard:
    """``sessions`` live listeners: each begins its next utterance when the last has been played to its end, or was left.

    They begin one by one over the warm-up, as people do. Not ``live``: nobody waits for the playback.
    """
    run = _Run(target, script, span, clock, finished)

    async def listen(session: int) -> None:
        due = run.began_ns + (run.warm_ns - run.began_ns) * session // sessions
        await sleep_until(due, clock)
        while not run.over:
            utterance = await run.speak(session, due)
            due = clock()
            if utterance.outcome is Outcome.COMPLETE and live:
                due = max(due, utterance.playback().end_ns or due)
            elif utterance.outcome not in (Outcome.COMPLETE, Outcome.LEFT):
                due += round(REST_S * SECOND)
            await sleep_until(min(due, run.end_ns), clock)

    return await run.heard({asyncio.create_task(listen(session)) for session in range(sessions)})


async def open_loop(
    target: Target,
    script: Script,
    rate: float,
    span: Span,
    *,
    clock: Clock = time.perf_counter_ns,
    finished: Callable[[Utterance], object] = lambda _: None,
) -> Heard:
    """Listeners who come at random, ``rate`` a second, however many are being served."""
    run = _Run(target, script, span, clock, finished)
    listeners: set[asyncio.Task[None]] = set()

    async def listen(session: int, due_ns: int) -> None:
        await run.speak(session, due_ns)

    for session, after_s in enumerate(poisson(rate, span.warmup_s + span.seconds, script.seed)):
        due = run.began_ns + round(after_s * SECOND)
        await sleep_until(due, clock)
        if run.over:
            break
        listeners.add(asyncio.create_task(listen(session, due)))
        await asyncio.sleep(0)  # it counts as begun before the next one asks
    return await run.heard(listeners)


def poisson(rate: float, seconds: float, seed: int) -> list[float]:
    """Seconds at which listeners come, ``rate`` a second on average, up to ``seconds``; the same seed gives the same."""
    rng = random.Random(seed)
    times: list[float] = []
    now = rng.expovariate(rate)
    while now < seconds:
        times.append(now)
        now += rng.expovariate(rate)
    return times
