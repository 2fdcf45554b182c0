"""Measures one setting of a target: the load, the search for capacity, the cancels. Knows what to run in which order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from rich.console import Console

from service.loop_lag import watch_lag
from tts_spec.bench.latency.capacity import find_capacity
from tts_spec.bench.latency.gauges import ACTIVE, LAG, OVERHEAD, Gauges
from tts_spec.bench.latency.load import Heard, Script, Span, closed_loop, open_loop
from tts_spec.bench.latency.options import LatencyOptions
from tts_spec.bench.latency.report import Figures, Watch, figures
from tts_spec.bench.latency.target import Clock, Target
from tts_spec.bench.latency.utterance import Leave, Request, Utterance

SCRAPE_S = 1.0
EMPTY_WITHIN_S = 5.0
CANCEL_TEXTS = 5  # joined, so that a cancel comes in the middle
CANCEL_WITHIN_S = 0.5
CANCELS_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Measured:
    """One setting, measured."""

    sessions: int | None  # live ones; None in the open loop
    capacity: int | None  # None when it was not searched
    heard: Heard
    figures: Figures
    watch: Watch


@dataclass(frozen=True, slots=True)
class _Load:
    heard: Heard
    watch: Watch


async def measure(
    target: Target,
    gauges: Gauges | None,
    options: LatencyOptions,
    drafter: str | None,
    console: Console,
    clock: Clock = time.perf_counter_ns,
    protocols: Sequence[str] = (),
) -> Measured:
    """Measure ``target`` with ``drafter`` in every request (None: nothing is said about it), over ``protocols`` in turn."""
    like = Request("", drafter=drafter, voice=options.voice, words_per_s=options.words_per_s)
    script = Script(options.texts, like, options.seed, options.leave_share, target.leaves, protocols=protocols)
    await _warm(target, script, clock)
    capacity: int | None = None
    if options.find_capacity:
        loads: dict[int, _Load] = {}

        async def holds(n: int) -> bool:
            loads[n] = await _load(target, gauges, options, script, n, clock)
            found = figures(loads[n].heard)
            good = found.holds(options.budget_ms)
            first = found.spread["first_audio_ms"].p95
            said = "no audio" if first is None else f"first audio p95 {first:.0f} ms"
            console.print(f"{n} sessions: {said}, {found.underruns} underruns: {'holds' if good else 'too many'}")
            return good

        capacity = await find_capacity(holds, options.max_sessions)
        sessions = capacity or 1
        load = loads[sessions]
    else:
        sessions = options.sessions
        load = await _load(target, gauges, options, script, sessions, clock)
    cancelled = await _cancels(target, options, script, sessions, clock)
    if gauges is not None:
        load.watch.active_after = await _empty(gauges)
    found = figures(load.heard, cancelled, load.watch.harness_lag_s)
    return Measured(sessions if options.rate is None else None, capacity, load.heard, found, load.watch)


async def _warm(target: Target, script: Script, clock: Clock) -> None:
    """Speak once, unmeasured: connections, caches, and the drafter if it is loaded late."""
    once = Script(script.texts, script.like, protocols=script.protocols)
    span = Span(60, utterances=max(1, len(script.protocols)))
    await closed_loop(target, once, 1, span, live=False, clock=clock)


async def _load(
    target: Target, gauges: Gauges | None, options: LatencyOptions, script: Script, sessions: int, clock: Clock
) -> _Load:
    span = Span(options.seconds, options.warmup_s, options.utterances)
    finished: list[Utterance] = []
    async with _watching(gauges, finished) as watch:
        if options.rate is not None:
            heard = await open_loop(target, script, options.rate, span, clock=clock, finished=finished.append)
        else:
            heard = await closed_loop(target, script, sessions, span, clock=clock, finished=finished.append)
    return _Load(heard, watch)


async def _cancels(
    target: Target, options: LatencyOptions, script: Script, sessions: int, clock: Clock
) -> Sequence[Utterance]:
    """``sessions`` listeners cancel again and again, ``options.cancels`` times in all; one comes too late where all is sent at once."""
    if not options.cancels or Leave.CANCEL not in target.leaves:
        return ()
    texts = script.texts
    long = [" ".join(texts[(start + i) % len(texts)] for i in range(CANCEL_TEXTS)) for start in range(len(texts))]
    leaving = Script(long, script.like, script.seed, 1.0, (Leave.CANCEL,), CANCEL_WITHIN_S, script.protocols)
    heard = await closed_loop(
        target, leaving, sessions, Span(CANCELS_WITHIN_S, 0.0, options.cancels), live=False, clock=clock
    )
    return heard.everything


@asynccontextmanager
async def _watching(gauges: Gauges | None, finished: Sequence[Utterance]) -> AsyncIterator[Watch]:
    """Watch the harness's own loop, and what the server says about itself, while the block runs."""
    watch = Watch()
    tasks = [asyncio.create_task(watch_lag(watch.harness_lag_s.append))]
    before = await gauges.scrape() if gauges is not None else None
    if gauges is not None and before is not None:
        tasks.append(asyncio.create_task(_watch_rss(gauges, watch, finished)))
    try:
        yield watch
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    after = await gauges.scrape() if gauges is not None else None
    if before is not None and after is not None:
        watch.loop_lag_ms = after.percentiles_since(before, LAG)
        watch.overhead_ms = after.percentiles_since(before, OVERHEAD)
        if after.rss_mb is not None:
            watch.rss_mb.append((len(finished), after.rss_mb))


async def _watch_rss(gauges: Gauges, watch: Watch, finished: Sequence[Utterance]) -> None:
    while True:
        scrape = await gauges.scrape()
        if scrape is not None and scrape.rss_mb is not None:
            watch.rss_mb.append((len(finished), scrape.rss_mb))
        await asyncio.sleep(SCRAPE_S)


async def _empty(gauges: Gauges) -> int | None:
    """Sessions the server counts once it has had time to notice that all are gone: 0, or a leak."""
    active: int | None = None
    with suppress(TimeoutError):
        async with asyncio.timeout(EMPTY_WITHIN_S):
            while (scrape := await gauges.scrape()) is not None and ACTIVE in scrape.values:
                active = int(scrape.values[ACTIVE])
                if not active:
                    break
                await asyncio.sleep(0.05)
    return active
