"""What every metric does with its input first: check it, resample it, find the weights that a package carries.

Knows no metric.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import torch
import torchaudio

from tts_spec.types import Pcm, SpeechError

_SHORTEST_S = 0.05


def resampled(pcm: Pcm, sample_rate: int, target_rate: int) -> Pcm:
    """``pcm`` (mono, [-1, 1]) at ``target_rate``: float32 [about N * target_rate / sample_rate], clipped to [-1, 1].

    Raises SpeechError as ``checked``.
    """
    checked(pcm, sample_rate)
    wave = torch.from_numpy(np.ascontiguousarray(pcm, dtype=np.float32))
    if sample_rate != target_rate:
        wave = torchaudio.functional.resample(wave, sample_rate, target_rate)
    return wave.clamp(-1, 1).numpy()


def checked(pcm: Pcm, sample_rate: int) -> None:
    """Raises SpeechError when ``pcm`` is not one-dimensional, not finite or shorter than 50 ms, or the rate is no rate."""
    if not 1_000 <= sample_rate <= 384_000:
        raise SpeechError("invalid_value", f"sample_rate is {sample_rate}; allowed: 1000 to 384000", "sample_rate")
    if pcm.ndim != 1 or len(pcm) < _SHORTEST_S * sample_rate or not np.isfinite(pcm).all():
        raise SpeechError(
            "invalid_value", f"pcm has shape {pcm.shape}; allowed: one dimension, finite, at least 50 ms", "pcm"
        )


def packaged_file(package: str, path: str) -> Path:
    """``path`` inside the installed ``package``, without importing it; raises ImportError when it is not there."""
    try:
        file = Path(str(distribution(package).locate_file(path)))
    except PackageNotFoundError as error:
        raise ImportError(
            f"{package} is not installed; it is in the eval extra: pip install 'tts-spec[eval]'"
        ) from error
    if not file.exists():
        raise ImportError(f"{package} is installed without {path}; expected {file}")
    return file
