"""Where a clip is silent: before, within and after the speech.

Silent means RMS under -45 dBFS in 20 ms windows, every 10 ms, the design's threshold of the audible. Blind to what is
said and to quiet noise that a listener would call silence; depends on loudness.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import numpy as np

from models.evaluation.waveform import resampled
from tts_spec.types import Pcm

_HZ = 24_000
_HOP = _HZ // 100
_AUDIBLE = 10 ** (-45 / 20)
_SHORTEST_PAUSE_S = 0.15  # shorter gaps are the closures of consonants


@dataclass(frozen=True, slots=True)
class Pauses:
    """Silences of a clip in seconds, to 10 ms.

    Attributes:
        lead_s: until the first two consecutive audible windows; the whole clip when there are none.
        tail_s: after the last audible window; 0 when nothing is audible.
        count: silences of at least 150 ms between them.
        total_s: their sum.
        longest_s: the longest of them; 0 when there is none.
    """

    lead_s: float
    tail_s: float
    count: int
    total_s: float
    longest_s: float


def measure_pauses(pcm: Pcm, sample_rate: int) -> Pauses:
    """Silences in ``pcm`` ([N] mono in [-1, 1])."""
    wave = resampled(pcm, sample_rate, _HZ)
    windows = np.lib.stride_tricks.sliding_window_view(wave, 2 * _HOP)[::_HOP]
    audible = np.sqrt(np.mean(windows**2, axis=1)) >= _AUDIBLE
    starts = np.flatnonzero(audible[:-1] & audible[1:])
    if not len(starts):
        return Pauses(len(wave) / _HZ, 0.0, 0, 0.0, 0.0)
    first, last = int(starts[0]), int(np.flatnonzero(audible)[-1])
    gaps = [sum(1 for _ in run) / 100 for heard, run in groupby(audible[first : last + 1]) if not heard]
    pauses = [gap for gap in gaps if gap >= _SHORTEST_PAUSE_S]
    tail_s = max(len(wave) / _HZ - (last + 2) / 100, 0.0)
    return Pauses(first / 100, tail_s, len(pauses), sum(pauses), max(pauses, default=0.0))
