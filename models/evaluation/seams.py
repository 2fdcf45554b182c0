"""Clicks where pieces of a stream meet: is the step from one sample to the next larger there than anywhere near?

Blind to clicks elsewhere and to seams in silence. In one whole decoding the step at a place picked at random is the largest of its
neighbourhood once in a few hundred places, and then by little.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tts_spec.types import Pcm, SpeechError

_NEAR_S = 0.005
_INAUDIBLE = 0.003  # steps below are no clicks, whatever is near
CLICK = 1.5  # steps as many times as large as any near them


def seam_contrasts(pcm: Pcm, sample_rate: int, seams: Sequence[int]) -> list[float]:
    """For each of ``seams`` (index of the first sample of a piece): the step into it over the largest step within 5 ms; 0 if inaudible.

    ``pcm`` is [N] mono in [-1, 1]. Raises SpeechError for a seam that is none: 1 to N - 1 are.
    """
    near = int(_NEAR_S * sample_rate)
    contrasts = []
    for seam in seams:
        if not 1 <= seam < len(pcm):
            raise SpeechError("invalid_value", f"seams has {seam}; allowed: 1 to {len(pcm) - 1}", "seams")
        step = float(abs(pcm[seam] - pcm[seam - 1]))
        before = np.abs(np.diff(pcm[max(seam - near, 0) : seam]))
        after = np.abs(np.diff(pcm[seam : seam + near]))
        others = float(np.concatenate([before, after]).max(initial=1e-6))
        contrasts.append(step / others if step >= _INAUDIBLE else 0.0)
    return contrasts
