"""How a clip begins, ends and overflows: level of its first and last 50 ms, its first and last sample, samples at full scale.

A word that is cut is loud from the first sample or to the last, a click is a sample far from zero. Blind to what is said; a clip that
begins at once is rightly loud in its first 50 ms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.evaluation.waveform import checked
from tts_spec.types import Pcm

_EDGE_S = 0.05
_CUT_S = 0.005
_CUT_DBFS = -35.0  # louder so near to the edge: speech is going on there
_SILENT_DBFS = -100.0  # what digital silence counts as
_FULL_SCALE = 0.999


@dataclass(frozen=True, slots=True)
class Edges:
    """Edges of a clip.

    Attributes:
        first_dbfs: RMS of the first 50 ms, dB below full scale; -100 for digital silence.
        last_dbfs: the same of the last 50 ms.
        cut: whether the first or the last 5 ms are as loud as speech.
        jump: largest absolute value of first and last sample, 0 to 1.
        clipped: samples at full scale or beyond.
    """

    first_dbfs: float
    last_dbfs: float
    cut: bool
    jump: float
    clipped: int


def measure_edges(pcm: Pcm, sample_rate: int) -> Edges:
    """Edges of ``pcm`` ([N] mono). Raises SpeechError as every metric does."""
    checked(pcm, sample_rate)
    count, few = int(_EDGE_S * sample_rate), int(_CUT_S * sample_rate)
    return Edges(
        first_dbfs=level_dbfs(pcm[:count]),
        last_dbfs=level_dbfs(pcm[-count:]),
        cut=max(level_dbfs(pcm[:few]), level_dbfs(pcm[-few:])) >= _CUT_DBFS,
        jump=float(max(abs(pcm[0]), abs(pcm[-1]))),
        clipped=int(np.count_nonzero(np.abs(pcm) >= _FULL_SCALE)),
    )


def level_dbfs(pcm: Pcm) -> float:
    """RMS of ``pcm`` ([N] mono) in dB below full scale, at least -100."""
    power = float(np.mean(np.square(pcm, dtype=np.float64)))
    return max(_SILENT_DBFS, 10 * float(np.log10(power))) if power > 0 else _SILENT_DBFS
