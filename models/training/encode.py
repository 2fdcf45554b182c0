"""Encodes a packed corpus with a trained codec: one file of codes for all utterances.

    python -m models.training.encode PACKED CODEC_CHECKPOINT OUT.npz

The file holds ``codes`` uint16 [units, K] in corpus order and ``lead`` uint8 [utterances]: how many frames of each utterance's leading
pad are worth keeping (from a little before the first audible sample). Knows nothing of language models.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import typer
from rich.progress import track

from models.codec.codec import CodecConfig, NeuralCodec
from models.training.dataset import UNIT, PackedCorpus

AUDIBLE_RMS = 10 ** (-45 / 20)


def leading_frames(pcm: npt.NDArray[np.float32], pad: int) -> int:
    """Frames of a leading pad of ``pad`` frames to keep: from two frames before the first audible 10 ms, at least 2."""
    windows = pcm[: len(pcm) // 240 * 240].reshape(-1, 240)
    audible = np.flatnonzero(np.sqrt(np.mean(np.square(windows), axis=1)) >= AUDIBLE_RMS)
    onset = int(audible[0]) * 240 // UNIT if len(audible) else pad
    return min(pad, max(2, pad - onset + 2))


def load_codec(checkpoint: Path) -> NeuralCodec:
    """The codec of a training checkpoint, for inference."""
    codec = NeuralCodec(CodecConfig())
    codec.load_state_dict(torch.load(checkpoint, map_location="cpu", weights_only=True)["parts"]["codec"])
    return codec.eval()


def encode(packed: Path, checkpoint: Path, out: Path) -> None:
    """Write the codes of every utterance of ``packed``."""
    corpus = PackedCorpus(packed)
    codec = load_codec(checkpoint)
    units = sum(row.samples for row in corpus.rows) // UNIT
    codes = np.zeros((units, codec.codebooks), np.uint16)
    lead = np.zeros(len(corpus.rows), np.uint8)
    for index, row in enumerate(track(corpus.rows, description="encoding")):
        pcm = corpus.pcm(row.start, row.samples)
        lead[index] = leading_frames(pcm, row.durations[0])
        with torch.autocast("cpu", torch.bfloat16, enabled=False):
            found = codec.encode(torch.from_numpy(pcm)[None])[0]  # [K, F]
        codes[row.start // UNIT : (row.start + row.samples) // UNIT] = found.T.numpy()
    np.savez(out, codes=codes, lead=lead)


if __name__ == "__main__":
    typer.run(encode)
