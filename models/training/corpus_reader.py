"""Reads a corpus of teacher speech: tar shards of JSON + Ogg Opus pairs.

Knows the format of the shards and checks it; does not know how they are made, nor what the phonemes mean.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

SAMPLE_RATE = 24_000
UNIT = 600  # samples in one unit of duration
F0_PER_UNIT = 2  # F0 values in one unit of duration (80 Hz)

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Utterance:
    """One spoken sentence, without its sound.

    Attributes:
        phonemes: P symbols of the misaki alphabet, one character each.
        durations: P + 2 whole units of 600 samples; the first and the last belong to the teacher's pads.
        f0: float32 [2 * sum(durations)], Hz at 80 Hz, 0 = unvoiced.
        samples: length of the sound at 24 kHz, = 600 * sum(durations).
    """

    id: int
    text: str
    voice: str
    speed: float
    phonemes: str
    durations: tuple[int, ...]
    f0: Floats
    samples: int

    def __post_init__(self) -> None:
        units = sum(self.durations)
        if len(self.durations) != len(self.phonemes) + 2:
            raise ValueError(f"{len(self.durations)} durations for {len(self.phonemes)} phonemes and 2 pads")
        if min(self.durations) < 0:
            raise ValueError("a duration is negative")
        if self.samples != UNIT * units:
            raise ValueError(f"{self.samples} samples; the durations make {UNIT * units}")
        if self.f0.shape != (F0_PER_UNIT * units,):
            raise ValueError(f"f0 has shape {self.f0.shape}; the durations make ({F0_PER_UNIT * units},)")

    def to_json(self) -> bytes:
        """The JSON file of this utterance, as ``read_corpus`` reads it; F0 is rounded to whole Hz."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields["durations"] = list(self.durations)
        fields["f0"] = [round(hz) for hz in self.f0.tolist()]
        return json.dumps(fields, ensure_ascii=False).encode()


def read_corpus(folder: Path) -> Iterator[tuple[Utterance, bytes]]:
    """Yields (utterance, Ogg Opus bytes) of every ``*.tar`` in ``folder``, shards in sorted order.

    Raises:
        FileNotFoundError: there is no shard.
        ValueError: a shard is broken; the message names shard and member.
    """
    shards = sorted(folder.glob("*.tar"))
    if not shards:
        raise FileNotFoundError(f"no *.tar in {folder}")
    for shard in shards:
        yield from read_shard(shard)


def read_shard(shard: Path) -> Iterator[tuple[Utterance, bytes]]:
    """Yields the (utterance, Ogg Opus bytes) pairs of one shard; raises ValueError when it is broken."""
    waiting: dict[str, dict[str, bytes]] = {}  # halves whose other half has not been met yet
    try:
        with tarfile.open(shard, "r:") as tar:
            for member in tar:
                path = Path(member.name)
                if not member.isfile() or path.suffix not in (".json", ".ogg"):
                    continue
                body = tar.extractfile(member)
                assert body is not None  # a plain file has a body
                pair = waiting.setdefault(path.stem, {})
                pair[path.suffix] = body.read()
                if len(pair) == 2:
                    del waiting[path.stem]
                    yield _parse(shard, path.stem, pair[".json"]), pair[".ogg"]
    except tarfile.TarError as error:
        raise ValueError(f"{shard}: not a whole tar file ({error})") from error
    if waiting:
        raise ValueError(f"{shard}: json or ogg is missing for {', '.join(sorted(waiting))}")


def decode_audio(ogg: bytes) -> Floats:
    """Decodes Ogg Opus of 24 kHz mono to float32 [N]; raises ValueError when it is something else or broken."""
    try:
        pcm, rate = soundfile.read(io.BytesIO(ogg), dtype="float32")
    except soundfile.LibsndfileError as error:
        raise ValueError(f"not readable audio: {error}") from error
    if rate != SAMPLE_RATE or pcm.ndim != 1:
        raise ValueError(f"audio is {rate} Hz with shape {pcm.shape}; a corpus holds {SAMPLE_RATE} Hz mono")
    audio: Floats = pcm
    return audio


def load_audio(utterance: Utterance, ogg: bytes) -> Floats:
    """Decodes the sound of ``utterance``: float32 [samples]; raises ValueError when its length is not ``samples``."""
    pcm = decode_audio(ogg)
    if len(pcm) != utterance.samples:
        raise ValueError(f"utterance {utterance.id}: audio has {len(pcm)} samples; its json says {utterance.samples}")
    return pcm


def _parse(shard: Path, stem: str, body: bytes) -> Utterance:
    try:
        fields = json.loads(body)
        return Utterance(
            id=int(fields["id"]),
            text=str(fields["text"]),
            voice=str(fields["voice"]),
            speed=float(fields["speed"]),
            phonemes=str(fields["phonemes"]),
            durations=tuple(int(n) for n in fields["durations"]),
            f0=np.asarray(fields["f0"], dtype=np.float32),
            samples=int(fields["samples"]),
        )
    except KeyError as error:
        raise ValueError(f"{shard}: {stem}.json lacks {error}") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{shard}: {stem}.json: {error}") from error
