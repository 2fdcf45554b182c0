"""Onset, playback and percentiles on timelines made by hand. The numbers of the first tests are those of nari's own tests."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_spec.bench.latency.distribution import Distribution, histogram_percentile, percentile
from tts_spec.bench.latency.onset import OnsetDetector
from tts_spec.bench.latency.playback import Arrival, Underrun, play

MS = 1_000_000
RATE = 24_000


def silence(ms: float) -> np.ndarray:
    return np.zeros(round(ms * RATE / 1000), np.int16)


def sine(ms: float, dbfs: float = -20.0) -> np.ndarray:
    at = np.arange(round(ms * RATE / 1000)) / RATE
    return np.rint(32768 * math.sqrt(2) * 10 ** (dbfs / 20) * np.sin(2 * np.pi * 500 * at)).astype(np.int16)


def onset(*parts: np.ndarray, rate: int = RATE) -> int | None:
    detector = OnsetDetector(rate)
    for part in parts:
        detector.feed(part)
    return detector.onset


def test_onset_ignores_a_constant_and_needs_two_windows() -> None:
    constant = np.full(RATE // 20, 2000, np.int16)
    tone = sine(40)
    assert onset(constant, silence(20)) is None  # one loud window where the constant ends is not speech
    assert onset(constant, silence(20), tone[:240]) is None
    assert onset(constant, silence(20), tone[:240], tone[240:]) == 60 * RATE // 1000


def test_onset_is_the_start_of_the_first_of_two_windows() -> None:
    # The window from 90 ms holds 10 ms of tone: at -20 dBFS that is loud enough.
    assert onset(silence(100), sine(100)) == 90 * RATE // 1000
    assert onset(sine(100)) == 0
    assert onset(sine(29)) is None  # a second window is not whole
    assert onset(sine(30)) == 0


@pytest.mark.parametrize(("dbfs", "heard"), [(-44.8, True), (-45.2, False), (-90, False)])
def test_the_threshold_is_minus_45_dbfs(dbfs: float, heard: bool) -> None:
    assert (onset(sine(200, dbfs)) is not None) is heard


@given(
    lead=st.integers(0, 3000),
    cuts=st.lists(st.integers(1, 2000), max_size=8),
    offset=st.integers(-8000, 8000),
)
@settings(deadline=None, max_examples=50)
def test_onset_does_not_depend_on_cutting_or_dc(lead: int, cuts: list[int], offset: int) -> None:
    whole = np.concatenate([np.zeros(lead, np.int16), sine(60)])
    expected = onset(whole)
    parts = np.split(whole + np.int16(offset), np.cumsum(cuts))
    assert onset(*parts) == expected is not None


def test_playback_without_gaps() -> None:
    playback = play([Arrival(10 * MS, 100 * MS), Arrival(70 * MS, 100 * MS)])
    assert playback.underruns == ()
    assert playback.heard_ns(20 * MS) == 30 * MS
    assert (playback.end_ns, playback.audio_ns, playback.min_lead_ns) == (210 * MS, 200 * MS, 40 * MS)


def test_playback_with_two_underruns() -> None:
    playback = play([Arrival(0, 100 * MS), Arrival(200 * MS, 100 * MS), Arrival(350 * MS, 50 * MS)])
    assert playback.underruns == (Underrun(100 * MS, 100 * MS), Underrun(300 * MS, 50 * MS))
    assert playback.heard_ns(150 * MS) == 250 * MS  # the onset waits, too, when playback stood still before it
    assert playback.min_lead_ns == -100 * MS


def test_c19_arriving_at_the_very_deadline_is_no_underrun() -> None:
    assert play([Arrival(0, 25 * MS), Arrival(25 * MS, 25 * MS)]).underruns == ()
    assert play([Arrival(0, 25 * MS), Arrival(25 * MS + 1, 25 * MS)]).underruns == (Underrun(25 * MS, 1),)


def test_no_audio_is_not_played() -> None:
    playback = play([])
    assert (playback.end_ns, playback.audio_ns, playback.min_lead_ns, playback.level_ns(0)) == (None, 0, None, 0)
    with pytest.raises(ValueError, match="offset_ns is 0"):
        playback.heard_ns(0)


def test_the_level_of_the_buffer() -> None:
    playback = play([Arrival(0, 100 * MS), Arrival(50 * MS, 100 * MS), Arrival(300 * MS, 50 * MS)])
    seen = [playback.level_ns(at * MS) // MS for at in (-10, 0, 40, 50, 120, 200, 250, 300, 340, 400)]
    assert seen == [0, 100, 60, 150, 80, 0, 0, 50, 10, 0]


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 100)), min_size=1, max_size=20))
@settings(deadline=None, max_examples=60)
def test_playback_adds_up(steps: list[tuple[int, int]]) -> None:
    at, arrivals = 0, []
    for wait, length in steps:
        at += wait
        arrivals.append(Arrival(at, length))
    playback = play(arrivals)
    still = sum(underrun.length_ns for underrun in playback.underruns)
    assert playback.end_ns == arrivals[0].at_ns + playback.audio_ns + still
    assert all(start >= arrival.at_ns for arrival, start in zip(arrivals, playback.starts, strict=True))
    lead = playback.min_lead_ns
    assert bool(playback.underruns) == (lead is not None and lead < 0)
    # Buffer = arrived - played, whatever the moment.
    for now in range(arrivals[0].at_ns, playback.end_ns, max(1, (playback.end_ns - arrivals[0].at_ns) // 7)):
        arrived = sum(each.length_ns for each in arrivals if each.at_ns <= now)
        stalled = sum(min(now, u.from_ns + u.length_ns) - u.from_ns for u in playback.underruns if u.from_ns <= now)
        assert playback.level_ns(now) == arrived - (now - arrivals[0].at_ns - stalled)


def test_percentiles_are_nearest_rank() -> None:
    values = [15.0, 20.0, 35.0, 40.0, 50.0]
    assert [percentile(values, percent) for percent in (5, 30, 40, 50, 100)] == [15, 20, 20, 35, 50]
    assert Distribution.of([]) == Distribution(0)
    found = Distribution.of([float(n) for n in range(100, 0, -1)])
    assert found == Distribution(100, 1, 50, 95, 99, 100, 50)
    assert found.as_dict() == {"n": 100, "min": 1, "p50": 50, "p95": 95, "p99": 99, "max": 100, "iqr": 50}


def test_a_percentile_from_a_histogram() -> None:
    buckets = [(0.01, 50.0), (0.02, 90.0), (0.05, 100.0), (math.inf, 100.0)]
    assert histogram_percentile(buckets, 50) == pytest.approx(0.01)
    assert histogram_percentile(buckets, 70) == pytest.approx(0.015)
    assert histogram_percentile(buckets, 95) == pytest.approx(0.035)
    assert histogram_percentile([(0.01, 0.0), (math.inf, 4.0)], 50) == pytest.approx(0.01)  # beyond the last bound
    assert histogram_percentile([(0.01, 0.0), (math.inf, 0.0)], 50) is None
    assert histogram_percentile([], 50) is None


@given(st.lists(st.floats(0.001, 0.999), min_size=30, max_size=200))
@settings(deadline=None, max_examples=30)
def test_a_histogram_is_right_within_its_buckets(values: list[float]) -> None:
    bounds = [n / 50 for n in range(1, 51)]
    buckets = [(bound, float(sum(value <= bound for value in values))) for bound in bounds]
    found = histogram_percentile(buckets, 50)
    assert found is not None
    assert abs(found - statistics.median_low(sorted(values))) <= 0.02 + 1e-9
