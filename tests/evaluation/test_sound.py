"""Metrics that need no model: input checks, pauses, F0; each on sounds whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.evaluation.edges import level_dbfs, measure_edges
from models.evaluation.f0 import melody, track_f0
from models.evaluation.noise import longest_noise_s
from models.evaluation.pauses import measure_pauses
from models.evaluation.waveform import packaged_file, resampled
from tts_spec.types import Pcm, SpeechError

RATE = 24_000


def tone(seconds: float, hz: float = 200.0, rate: int = RATE) -> Pcm:
    """A buzz: five harmonics of ``hz``."""
    time = np.arange(int(seconds * rate)) / rate
    return sum(0.1 * np.sin(2 * np.pi * hz * k * time) for k in range(1, 6)).astype(np.float32)  # type: ignore[union-attr]


def silence(seconds: float) -> Pcm:
    return np.zeros(int(seconds * RATE), dtype=np.float32)


def test_resampling_keeps_the_sound_and_checks_it() -> None:
    there = resampled(tone(0.5), RATE, 16_000)
    assert len(there) == 8_000
    assert np.corrcoef(there[500:-500], tone(0.5, rate=16_000)[500:-500])[0, 1] > 0.999
    for pcm, rate, field in (
        (tone(0.01), RATE, "pcm"),
        (np.zeros((2, 9_000), dtype=np.float32), RATE, "pcm"),
        (np.full(9_000, np.nan, dtype=np.float32), RATE, "pcm"),
        (tone(0.5), 0, "sample_rate"),
    ):
        with pytest.raises(SpeechError) as error:
            resampled(pcm, rate, 16_000)
        assert error.value.field == field


def test_missing_weights_name_the_extra() -> None:
    with pytest.raises(ImportError, match="eval extra"):
        packaged_file("no-such-package-here", "x")
    with pytest.raises(ImportError, match=r"without x/y\.onnx"):
        packaged_file("numpy", "x/y.onnx")


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 50), st.integers(20, 80), st.integers(0, 50))
def test_pauses_are_found_where_they_are(lead: int, gap: int, tail: int) -> None:
    pcm = np.concatenate([silence(lead / 100), tone(0.4), silence(gap / 100), tone(0.4), silence(tail / 100)])
    found = measure_pauses(pcm, RATE)
    assert found.lead_s == pytest.approx(lead / 100, abs=0.02)
    assert found.tail_s == pytest.approx(tail / 100, abs=0.03)
    assert found.count == 1
    assert found.total_s == found.longest_s == pytest.approx(gap / 100, abs=0.03)


def test_silence_and_short_gaps() -> None:
    assert measure_pauses(silence(1.0), RATE) == measure_pauses(silence(1.0) + 1e-4, RATE)
    assert measure_pauses(silence(1.0), RATE).lead_s == 1.0
    assert measure_pauses(np.concatenate([tone(0.3), silence(0.08), tone(0.3)]), RATE).count == 0


@pytest.mark.parametrize("hz", [85.0, 140.0, 310.0])
def test_f0_of_a_buzz(hz: float) -> None:
    track = track_f0(np.concatenate([tone(0.5, hz), silence(0.5)]), RATE)
    assert len(track) == pytest.approx(81, abs=1)
    voiced = track[5:35]
    assert np.count_nonzero(voiced) >= 28
    assert np.median(voiced[voiced > 0]) == pytest.approx(hz, rel=0.02)
    assert not track[45:].any()
    assert 0.4 < melody(track).voiced_share < 0.6


def test_melody() -> None:
    track = np.array([0, 100, 200, 100, 200, 0], dtype=np.float32)
    found = melody(track)
    assert found.median_hz == 150
    assert found.spread_semitones == pytest.approx(6.0)
    assert found.voiced_share == pytest.approx(4 / 6)
    assert melody(np.zeros(9, dtype=np.float32)).median_hz is None
    assert not track_f0(silence(0.5), RATE).any()


def test_edges_of_a_whole_clip_and_of_one_that_is_cut() -> None:
    whole = np.concatenate([silence(0.06), tone(0.5), silence(0.06)])
    found = measure_edges(whole, RATE)
    assert (found.first_dbfs, found.last_dbfs, found.jump, found.clipped) == (-100.0, -100.0, 0.0, 0)
    assert not found.cut
    faded = np.concatenate([tone(0.5) * np.linspace(0, 1, RATE // 2, dtype=np.float32), silence(0.06)])
    assert not measure_edges(faded, RATE).cut  # begins at once, but softly
    for cut in (whole[: RATE // 3], whole[RATE // 3 :]):
        assert measure_edges(cut, RATE).cut
    click = whole.copy()
    click[-1] = -0.3
    assert measure_edges(click, RATE).jump == pytest.approx(0.3)


def test_levels_and_clipping() -> None:
    sine = np.sin(np.arange(RATE) * 0.1).astype(np.float32)
    assert level_dbfs(sine) == pytest.approx(-3.01, abs=0.01)
    assert measure_edges(0.5 * sine, RATE).clipped == 0
    assert measure_edges(np.clip(4 * sine, -1, 1), RATE).clipped > 1000
    with pytest.raises(SpeechError, match="at least 50 ms"):
        measure_edges(tone(0.01), RATE)


def test_noise_is_found_and_speech_like_sound_is_not() -> None:
    hiss = np.random.default_rng(0).normal(0, 0.05, int(0.6 * RATE)).astype(np.float32)
    assert longest_noise_s(np.concatenate([tone(0.5), hiss, tone(0.5)]), RATE) == pytest.approx(0.6, abs=0.05)
    assert longest_noise_s(np.concatenate([tone(0.5), hiss[: RATE // 10], tone(0.5)]), RATE) < 0.15
    for quiet in (tone(1.0), silence(1.0), hiss * 0.01):
        assert longest_noise_s(quiet, RATE) == 0
