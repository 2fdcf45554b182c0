"""The melody: fundamental frequency and voicing, found in the sound itself (probabilistic YIN, librosa, ISC).

Blind to everything else. On teacher clips 1 % of the frames that both call voiced are off by more than 20 %; it calls
fewer frames voiced than the teacher does, whose F0 also covers the edges of voiced stretches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.evaluation.waveform import resampled
from tts_spec.types import Pcm

_HZ = 24_000
_FRAME = 1_200
_HOP = 300  # 80 values a second, as the teacher has
_LOWEST_HZ, _HIGHEST_HZ = 60.0, 500.0


@dataclass(frozen=True, slots=True)
class Melody:
    """Pitch of a clip.

    Attributes:
        median_hz: median F0 of voiced frames; None when nothing is voiced.
        spread_semitones: standard deviation of F0 in semitones: under 1.5 is monotone; None when nothing is voiced.
        voiced_share: voiced frames / all frames, 0 to 1.
    """

    median_hz: float | None
    spread_semitones: float | None
    voiced_share: float


def track_f0(pcm: Pcm, sample_rate: int) -> Pcm:
    """F0 of ``pcm`` ([N] mono in [-1, 1]): float32, Hz at 80 Hz, 0 = unvoiced; 60 to 500 Hz.

    Raises ImportError without the ``eval`` extra.
    """
    import librosa

    wave = resampled(pcm, sample_rate, _HZ)
    if not wave.any():
        return np.zeros(1 + len(wave) // _HOP, dtype=np.float32)
    f0, voiced, _ = librosa.pyin(wave, fmin=_LOWEST_HZ, fmax=_HIGHEST_HZ, sr=_HZ, frame_length=_FRAME, hop_length=_HOP)
    return np.where(voiced, f0, 0).astype(np.float32)


def melody(f0: Pcm) -> Melody:
    """Sums up an F0 track (Hz, 0 = unvoiced).

    The teacher's own F0 glides at the edges of voiced stretches, which widens its spread: compare tracked with tracked.
    """
    voiced = f0[f0 > 0]
    if not len(voiced):
        return Melody(None, None, 0.0)
    median = float(np.median(voiced))
    return Melody(median, float(np.std(12 * np.log2(voiced / median))), len(voiced) / len(f0))
