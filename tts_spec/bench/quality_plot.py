"""Spectrograms of a few sentences, ours beside the teacher's and the codec's, as a PNG. Knows sound; knows no scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten

import numpy as np

from tts_spec.bench.quality_report import SYSTEMS, Measured
from tts_spec.types import Pcm

_RATE = 24_000  # of every system
_RANGE_DB = 80


def plot_clips(measured: Sequence[Measured], clips: Sequence[tuple[Pcm, ...]], path: Path) -> None:
    """Write a PNG: a row a sentence, a column a system; log-mel power of 80 bands, 80 dB down from each row's loudest. Needs ``eval``."""
    import librosa
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(SYSTEMS), 2.2 * len(measured)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(measured), len(SYSTEMS), squeeze=False)
    for row, each, sounds in zip(grid, measured, clips, strict=True):
        powers = [
            librosa.feature.melspectrogram(y=pcm, sr=_RATE, n_fft=1024, hop_length=240, n_mels=80) for pcm in sounds
        ]
        loudest = max(power.max() for power in powers)
        longest = max(len(pcm) for pcm in sounds) / _RATE
        for axes, name, power in zip(row, SYSTEMS, powers, strict=True):
            picture = librosa.power_to_db(np.maximum(power, 1e-12), ref=loudest, top_db=None)
            axes.imshow(
                picture, origin="lower", aspect="auto", vmin=-_RANGE_DB, vmax=0, extent=(0, power.shape[1] / 100, 0, 80)
            )
            axes.set_xlim(0, longest)
            axes.set_yticks([])
            axes.set_title(f"{name}, {each.voice} {each.speed:g}: {shorten(each.sentence, 40)}", fontsize=8)
    figure.savefig(path, dpi=100)
