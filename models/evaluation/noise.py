"""Noise where speech should be: how long a clip hisses without a break.

Noise-like means audible with a flat spectrum from 100 Hz to 8 kHz, in windows of 20 ms. The longest fricatives of clear speech last
0.3 s; a voice that got lost hisses on. Blind to buzzing and to babble.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np

from models.evaluation.waveform import resampled
from tts_spec.types import Pcm

_HZ = 16_000
_WINDOW, _HOP = 512, 160
_AUDIBLE = 10 ** (-45 / 20)
_FLAT = 0.25  # geometric over arithmetic mean of the power: 0.56 for white noise, under 0.1 for vowels


def longest_noise_s(pcm: Pcm, sample_rate: int) -> float:
    """Seconds of the longest noise-like stretch in ``pcm`` ([N] mono in [-1, 1]), to 10 ms; 0 when there is none."""
    wave = resampled(pcm, sample_rate, _HZ)
    wave = np.pad(wave, (0, max(_WINDOW - len(wave), 0)))
    windows = np.lib.stride_tricks.sliding_window_view(wave, _WINDOW)[::_HOP]
    power = np.abs(np.fft.rfft(windows * np.hanning(_WINDOW), axis=1))[:, 3:] ** 2 + 1e-12
    flatness = np.exp(np.log(power).mean(axis=1)) / power.mean(axis=1)
    noisy = (flatness > _FLAT) & (np.sqrt(np.mean(windows**2, axis=1)) >= _AUDIBLE)
    return max((sum(1 for _ in run) / 100 for held, run in groupby(noisy) if held), default=0.0)
