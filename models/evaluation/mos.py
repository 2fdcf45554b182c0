"""How good it sounds, as DistillMOS guesses: the mean opinion of listeners, 1 (bad) to 5 (excellent).

Blind to wrong words, wrong voice and most of prosody, and to loudness (it normalises). It ranks distilled synthetic
speech above studio recordings: use it for differences between our own systems only.
"""

from __future__ import annotations

import contextlib
import io
from functools import cache
from typing import Any

import torch

from models.evaluation.waveform import resampled
from tts_spec.types import Pcm

_HZ = 16_000


def distill_mos(pcm: Pcm, sample_rate: int) -> float:
    """DistillMOS (MIT, 4.1M parameters) of ``pcm`` ([N] mono in [-1, 1]): 1 to 5; long clips: mean of 7.7 s windows.

    Hears nothing above 8 kHz. Raises ImportError without the ``eval`` extra.
    """
    wave = torch.from_numpy(resampled(pcm, sample_rate, _HZ))
    with torch.inference_mode():
        return float(_model()(wave[None]).mean())


@cache
def _model() -> Any:
    from distillmos import ConvTransformerSQAModel

    with contextlib.redirect_stdout(io.StringIO()):  # it prints where its weights are; our stdout may be JSON
        return ConvTransformerSQAModel().eval()
