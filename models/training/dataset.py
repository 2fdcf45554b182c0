"""The packed corpus: all speech of a corpus folder in flat arrays that training maps into memory.

Knows shards and arrays; knows nothing of codecs or language models. ``python -m models.training.dataset CORPUS... OUT`` packs.

    pcm.i16     int16 [samples]  all utterances one after another
    f0.f16      float16 [2 x units]  Hz at 80 Hz, 0 = unvoiced
    index.json  one row per utterance: id, voice, speed, text, phonemes, durations, pcm offset and length in samples
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import typer
from rich.progress import track

from models.training.corpus_reader import decode_audio, read_corpus
from models.training.texts import is_held_out

UNIT = 600  # samples in one unit of duration: one codec frame
SAMPLE_RATE = 24_000


@dataclass(frozen=True, slots=True)
class Row:
    """One utterance of a packed corpus; ``start`` and ``samples`` are in samples of pcm.i16."""

    id: int
    voice: str
    speed: float
    text: str
    phonemes: str
    durations: tuple[int, ...]  # one more at the start and at the end, for the pads; units of 600 samples
    start: int
    samples: int


def read_rows(folder: Path) -> list[Row]:
    """The utterances of a packed corpus folder."""
    rows = json.loads((folder / "index.json").read_text())
    return [Row(**(row | {"durations": tuple(row["durations"])})) for row in rows]


class PackedCorpus:
    """Memory-mapped view of a packed corpus folder."""

    def __init__(self, folder: Path) -> None:
        self.rows = read_rows(folder)
        self._pcm: npt.NDArray[np.int16] = np.memmap(folder / "pcm.i16", np.int16, "r")
        self._f0: npt.NDArray[np.float16] = np.memmap(folder / "f0.f16", np.float16, "r")

    def pcm(self, start: int, length: int) -> npt.NDArray[np.float32]:
        """float32 [length] in [-1, 1]; ``start`` in samples of the whole corpus."""
        return self._pcm[start : start + length].astype(np.float32) / 32768.0

    def f0(self, start: int, length: int) -> npt.NDArray[np.float32]:
        """float32 [length // 300] Hz; ``start`` in samples, a multiple of 300."""
        return self._f0[start // 300 : (start + length) // 300].astype(np.float32)


def pack(corpora: list[Path], out: Path) -> None:
    """Read every shard of ``corpora`` and write the packed arrays to ``out``; sentences held out by their hash or a list stay out."""
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    start = 0
    with (out / "pcm.i16").open("wb") as pcm_file, (out / "f0.f16").open("wb") as f0_file:
        for utterance, ogg in track(chain.from_iterable(map(read_corpus, corpora)), description="packing"):
            if is_held_out(utterance.text):
                continue
            pcm = decode_audio(ogg)
            f0 = np.asarray(utterance.f0, np.float16)
            if (
                len(pcm) != utterance.samples
                or len(f0) * 300 != len(pcm)
                or sum(utterance.durations) * UNIT != len(pcm)
            ):
                raise ValueError(
                    f"utterance {utterance.id}: {len(pcm)} samples decoded, {utterance.samples} stated, "
                    f"{len(f0)} F0 values, durations sum to {sum(utterance.durations)} units; they must agree"
                )
            (np.clip(pcm, -1, 1) * 32767).round().astype(np.int16).tofile(pcm_file)
            f0.tofile(f0_file)
            rows.append(
                {
                    "id": utterance.id,
                    "voice": utterance.voice,
                    "speed": utterance.speed,
                    "text": utterance.text,
                    "phonemes": utterance.phonemes,
                    "durations": list(utterance.durations),
                    "start": start,
                    "samples": len(pcm),
                }
            )
            start += len(pcm)
    (out / "index.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    typer.run(pack)
