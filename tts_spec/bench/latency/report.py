"""What a load comes to: figures of one setting, as a table for people and as JSON. Knows utterances, no server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tts_spec.bench.latency.distribution import Distribution
from tts_spec.bench.latency.load import Heard
from tts_spec.bench.latency.playback import SECOND
from tts_spec.bench.latency.protocols import Beside
from tts_spec.bench.latency.utterance import MILLISECOND, Outcome, Utterance

ROWS = {
    "first_audio_ms": "first audio, audible",
    "first_playable_ms": "first sample",
    "leading_silence_ms": "leading silence",
    "setup_ms": "connect and start",
    "gap_ms": "between chunks",
    "min_lead_ms": "least buffer",
    "end_to_end_ms": "end to end",
    "schedule_ms": "begun late (harness)",
    "harness_lag_ms": "loop lag of the harness",
    "cancel_ms": "cancel to last audio",
    "free_ms": "leaving to slot free",
}


@dataclass(slots=True)
class Watch:
    """What was watched beside the utterances of a setting."""

    harness_lag_s: list[float] = field(default_factory=list)
    loop_lag_ms: dict[str, float | None] = field(default_factory=lambda: {"p50": None, "p95": None, "p99": None})
    overhead_ms: dict[str, float | None] = field(default_factory=lambda: {"p50": None, "p95": None, "p99": None})
    rss_mb: list[tuple[int, float]] = field(default_factory=list)  # utterances finished so far, RSS of the server
    active_after: int | None = None  # sessions the server counts when all are gone


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one load. Distributions are over the measured utterances; what must not happen is counted over all."""

    utterances: int
    measured: int
    outcomes: dict[str, int]
    underruns: int
    underrun_utterances: int
    stalled_ms: float
    inaudible: int  # complete, with not even one audible sample
    errors: tuple[str, ...]  # the first few different ones
    audio_s: float
    spread: dict[str, Distribution]  # by the keys of ROWS

    def holds(self, budget_ms: float) -> bool:
        """Nobody heard a gap, was refused or failed, and both first audio and the way to a session keep the budget (p95)."""
        bad = sum(self.outcomes.get(outcome, 0) for outcome in (Outcome.REFUSED, Outcome.FAILED, Outcome.UNFINISHED))
        first, setup = self.spread["first_audio_ms"].p95, self.spread["setup_ms"].p95
        if bad or self.underruns or self.inaudible or first is None or setup is None:
            return False
        return first <= budget_ms and setup <= budget_ms


def figures(heard: Heard, cancelled: Sequence[Utterance] = (), harness_lag_s: Sequence[float] = ()) -> Figures:
    """The figures of a load and of the cancels measured after it."""
    everything, measured = heard.everything, heard.measured
    playbacks = [each.playback() for each in everything]
    errors = dict.fromkeys(each.error for each in (*everything, *cancelled) if each.error)
    leaving = [*everything, *cancelled]
    values: dict[str, Iterable[float | None]] = {
        "first_audio_ms": (each.first_audio_ms() for each in measured),
        "first_playable_ms": (each.first_playable_ms() for each in measured),
        "leading_silence_ms": (None if each.onset_ns is None else each.onset_ns / MILLISECOND for each in measured),
        "setup_ms": (
            None if each.sent_ns is None else (each.sent_ns - each.opened_ns) / MILLISECOND for each in measured
        ),
        "gap_ms": (gap for each in measured for gap in each.gaps_ms()),
        "min_lead_ms": (
            None if (lead := each.playback().min_lead_ns) is None else lead / MILLISECOND for each in measured
        ),
        "end_to_end_ms": (each.end_to_end_ms() for each in measured),
        "schedule_ms": ((each.opened_ns - each.due_ns) / MILLISECOND for each in measured),
        "harness_lag_ms": (lag * 1000 for lag in harness_lag_s),
        "cancel_ms": (each.cancel_ms() for each in leaving),
        "free_ms": (each.free_ms() for each in leaving),
    }
    return Figures(
        utterances=len(everything),
        measured=len(measured),
        outcomes=dict(Counter(str(each.outcome) for each in everything)),
        underruns=sum(len(each.underruns) for each in playbacks),
        underrun_utterances=sum(bool(each.underruns) for each in playbacks),
        stalled_ms=sum(underrun.length_ns for each in playbacks for underrun in each.underruns) / MILLISECOND,
        inaudible=sum(each.outcome is Outcome.COMPLETE and each.onset_ns is None for each in everything),
        errors=tuple(errors)[:5],
        audio_s=sum(each.audio_ns for each in playbacks) / SECOND,
        spread={key: Distribution.of([v for v in found if v is not None]) for key, found in values.items()},
    )


def as_dict(result: Figures, watch: Watch) -> dict[str, Any]:
    """One setting for the JSON line."""
    return {
        "utterances": result.utterances,
        "measured": result.measured,
        "outcomes": result.outcomes,
        "underruns": result.underruns,
        "underrun_utterances": result.underrun_utterances,
        "stalled_ms": round(result.stalled_ms, 1),
        "inaudible": result.inaudible,
        "errors": list(result.errors),
        "audio_s": round(result.audio_s, 2),
        **{key: spread.as_dict() for key, spread in result.spread.items()},
        "loop_lag_ms": watch.loop_lag_ms,
        "overhead_ms": watch.overhead_ms,
        "active_after": watch.active_after,
        "rss_mb": _rss(watch.rss_mb),
    }


def _rss(seen: Sequence[tuple[int, float]]) -> dict[str, float | None]:
    """RSS at first, after 50 utterances and at the end, and the growth since those 50."""
    if not seen:
        return {"first": None, "after_50": None, "last": None, "growth": None}
    settled = next((mb for finished, mb in seen if finished >= 50), None)
    last = seen[-1][1]
    growth = None if settled is None else round(last / settled - 1, 4)
    return {
        "first": round(seen[0][1], 1),
        "after_50": settled and round(settled, 1),
        "last": round(last, 1),
        "growth": growth,
    }


def show(name: str, load: str, result: Figures, watch: Watch, console: Console) -> None:
    """The table of one setting."""
    table = Table("ms", "n", "p50", "p95", "p99", "IQR", "min", "max", title=f"{escape(name)}: {load}")
    for key, label in ROWS.items():
        spread = result.spread[key]
        if spread.n:
            cells = (spread.p50, spread.p95, spread.p99, spread.iqr, spread.min, spread.max)
            table.add_row(label, str(spread.n), *(f"{value:.1f}" for value in cells))
    for label, told in (("loop lag of the server", watch.loop_lag_ms), ("engine to socket", watch.overhead_ms)):
        if told["p50"] is not None:
            table.add_row(label, "", *(f"{told[key]:.1f}" for key in ("p50", "p95", "p99")))
    console.print(table)
    outcomes = ", ".join(f"{n} {outcome}" for outcome, n in sorted(result.outcomes.items()))
    console.print(
        f"{result.utterances} utterances ({outcomes}), {result.audio_s:.1f} s of audio; {result.underruns} underruns in "
        f"{result.underrun_utterances} of them, {result.stalled_ms:.0f} ms still"
    )
    for error in result.errors:
        console.print(f"error: {error}", style="red", markup=False)


def show_beside(compared: Mapping[str, Beside], console: Console) -> None:
    """How much later than the native protocol the others are."""
    if not compared:
        return
    table = Table("first byte after native's, ms", "pairs", "p50", "p95", "pairwise p50", "pairwise p95")
    for name, each in compared.items():
        values = (each.p50, each.p95, each.pairs.p50 or 0.0, each.pairs.p95 or 0.0)
        table.add_row(name, str(each.pairs.n), *(f"{value:.1f}" for value in values))
    console.print(table)
