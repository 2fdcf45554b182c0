"""How clean it sounds, as DNSMOS guesses: opinions on speech, on background, on the whole, 1 (bad) to 5 (excellent).

Made to rate noise suppressors: hears hiss, buzz and dropouts, is blind to words, voice and prosody. The models are
those of the package speechmos (MIT), run as it runs them; its own code is not imported, as it wants more packages
than it declares.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from models.evaluation.waveform import packaged_file, resampled
from tts_spec.types import Pcm

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

_HZ = 16_000
_WINDOW = int(9.01 * _HZ)

# From raw P.835 outputs to opinions, highest power first (speechmos/dnsmos.py, not personalised).
_CURVES = {
    "sig": (-0.08397278, 1.22083953, 0.0052439),
    "bak": (-0.13166888, 1.60915514, -0.39604546),
    "ovrl": (-0.06766283, 1.11546468, 0.04602535),
}


@dataclass(frozen=True, slots=True)
class Dnsmos:
    """Mean opinions, 1 to 5: of the speech, of the background (5 = silent), of the whole; and of the whole by P.808."""

    sig: float
    bak: float
    ovrl: float
    p808: float


def dnsmos(pcm: Pcm, sample_rate: int) -> Dnsmos:
    """DNSMOS P.835 and P.808 of ``pcm`` ([N] mono in [-1, 1]); windows of 9 s each second, short clips are repeated.

    Raises ImportError without the ``eval`` extra.
    """
    wave = resampled(pcm, sample_rate, _HZ)
    while len(wave) < _WINDOW:  # by doubling, as the package does
        wave = np.concatenate([wave, wave])
    count = int(len(wave) // _HZ - 9.01) + 1  # the package's own count, so that figures can be compared
    windows = [wave[start : start + _WINDOW] for start in range(0, count * _HZ, _HZ)]
    raw = np.mean([_curved(window) for window in windows], axis=0)
    p808 = np.mean([_p808(window) for window in windows])
    return Dnsmos(sig=float(raw[0]), bak=float(raw[1]), ovrl=float(raw[2]), p808=float(p808))


def _curved(window: Pcm) -> list[float]:
    outputs = _session("sig_bak_ovr.onnx").run(None, {"input_1": window[None]})[0][0]
    return [float(np.polyval(curve, value)) for curve, value in zip(_CURVES.values(), outputs, strict=True)]


def _p808(window: Pcm) -> float:
    import librosa

    with warnings.catch_warnings():  # some mel bands are empty; the model was trained with them so
        warnings.filterwarnings("ignore", message="Empty filters detected")
        power = librosa.feature.melspectrogram(y=window[:-160], sr=_HZ, n_fft=321, hop_length=160, n_mels=120)
    features = (librosa.power_to_db(power, ref=np.max) + 40) / 40
    return float(_session("model_v8.onnx").run(None, {"input_1": features.T[None].astype(np.float32)})[0][0][0])


@cache
def _session(name: str) -> InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    path = packaged_file("speechmos", f"speechmos/dnsmos_models/{name}")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
