"""Tempo: other length, same pitch, whatever the cuts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.audio.test_encoder import voice_like
from tts_spec.audio.tempo import Tempo
from tts_spec.types import Pcm

RATE = 24_000


def change(factor: float, pcm: Pcm, size: int) -> Pcm:
    tempo = Tempo(factor, RATE)
    return np.concatenate([*(tempo.apply(pcm[at : at + size]) for at in range(0, len(pcm), size)), tempo.finish()])


@pytest.mark.parametrize("factor", [0.2, 0.5, 0.9, 1.5, 2.0, 5.0])
def test_the_length_changes_and_the_pitch_stays(factor: float) -> None:
    tone = (0.5 * np.sin(2 * np.pi * 300 * np.arange(2 * RATE) / RATE)).astype(np.float32)
    changed = change(factor, tone, 600)
    assert len(changed) / RATE == pytest.approx(2 / factor, rel=0.02)
    loudest = np.argmax(np.abs(np.fft.rfft(changed))) * RATE / len(changed)
    assert loudest == pytest.approx(300, abs=5)


@given(st.sampled_from([0.4, 0.8, 1.7, 3.0]), st.integers(1, 4000))
@settings(deadline=None, max_examples=15)
def test_the_samples_do_not_depend_on_the_cuts(factor: float, size: int) -> None:
    pcm = voice_like(0.4)
    assert np.array_equal(change(factor, pcm, size), change(factor, pcm, len(pcm)))


def test_nothing_stays_nothing() -> None:
    assert len(Tempo(2.0, RATE).finish()) == 0
