"""Sentences that text-to-speech gets wrong in public: is every word said, once and in order?

    python -m models.evaluation.hard_words --bundle models/starter

``hard_words.tsv`` has a sentence a line: kind, text, and what should be heard, where that is spelled otherwise (a homophone, or SSML for
sounds that no spelling has). First the front end is held against it, which needs no model; then the speech, by what Whisper tiny.en
writes down. Whisper mishears names and twisters of the teacher too (``--teacher``): its failures are candidates for an ear.
"""

from __future__ import annotations

import importlib.resources
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from models.evaluation.transcribe import transcribe, wer
from tts_spec.text.frontend import Frontend
from tts_spec.text.phonemes import PUNCTUATION
from tts_spec.types import Pcm

_STRESS = frozenset("ˈˌ")
_LOST = 0.7  # cost of a word that only one side has; of another word: the share of its sounds that differ
_JOINED = 3.0  # joined or parted words must sound nearly alike, or one of them was lost
_OTHER = 0.5  # a word that differs by more is another word


@dataclass(frozen=True, slots=True)
class HardSentence:
    """One line of the list."""

    kind: str
    text: str
    heard: str  # what a listener should hear


@dataclass(frozen=True, slots=True)
class Listening:
    """What became of the words: written as the sounds of each."""

    missing: list[str]
    extra: list[str]
    other: list[tuple[str, str]]  # should be, was

    @property
    def whole(self) -> bool:
        """Whether all words were there, in order."""
        return not (self.missing or self.extra or self.other)


@cache
def hard_sentences() -> tuple[HardSentence, ...]:
    """The list, in its order."""
    table = (importlib.resources.files("models.evaluation") / "hard_words.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in table.splitlines())
    return tuple(HardSentence(kind, text, heard or text) for kind, text, heard in rows)


def sounds(frontend: Frontend, text: str) -> list[str]:
    """The sounds of each word of ``text`` as spoken, without stress and marks."""
    symbols = (phoneme.symbol for phoneme in frontend.phonemize(text, 0).phonemes)
    spoken = "".join(" " if symbol in PUNCTUATION else symbol for symbol in symbols if symbol not in _STRESS)
    return spoken.split()


def front_end_fault(frontend: Frontend, sentence: HardSentence) -> str | None:
    """What the front end does wrong with ``sentence``: other sounds than should be heard, or written words without a sound; else None."""
    said, wanted = ("".join(sounds(frontend, text)) for text in (sentence.text, sentence.heard))
    if said != wanted:
        return f"says {said}, should say {wanted}"
    utterance = frontend.phonemize(sentence.text, 0)
    covered = {at for word in utterance.words for at in range(word.start_char, word.end_char)}
    unsaid = [char for at, char in enumerate(sentence.text) if char.isalnum() and at not in covered]
    if unsaid or utterance.warnings:
        return f"leaves out {''.join(unsaid)!r} {[warning.message for warning in utterance.warnings]}"
    starts = [word.start_char for word in utterance.words]
    return None if starts == sorted(starts) else "says words out of order"


def listen(frontend: Frontend, sentence: HardSentence, transcript: str) -> Listening:
    """What became of the words of ``sentence`` in ``transcript``, compared by sound; spelling and joined words make no difference."""
    if not all(wer(written, transcript).errors for written in (sentence.text, sentence.heard)):
        return Listening([], [], [])
    return aligned(sounds(frontend, sentence.heard), sounds(frontend, transcript))


def aligned(wanted: Sequence[str], heard: Sequence[str]) -> Listening:
    """The cheapest way from one row of words to another: words kept, changed, joined or parted, lost or added."""
    steps = ((1, 1), (1, 0), (0, 1), (2, 1), (1, 2))
    best: dict[tuple[int, int], tuple[float, tuple[int, int]]] = {(0, 0): (0.0, (0, 0))}
    for i in range(len(wanted) + 1):
        for j in range(len(heard) + 1):
            found = [
                (best[i - a, j - b][0] + _cost(wanted[i - a : i], heard[j - b : j]), (a, b))
                for a, b in steps
                if a <= i and b <= j
            ]
            if found:
                best[i, j] = min(found)
    missing, extra, other = [], [], []
    i, j = len(wanted), len(heard)
    while i or j:
        a, b = best[i, j][1]
        before, after = "".join(wanted[i - a : i]), "".join(heard[j - b : j])
        if not b:
            missing.append(before)
        elif not a:
            extra.append(after)
        elif _cost(wanted[i - a : i], heard[j - b : j]) > _OTHER:
            other.append((before, after))
        i, j = i - a, j - b
    return Listening(missing[::-1], extra[::-1], other[::-1])


def _cost(wanted: Sequence[str], heard: Sequence[str]) -> float:
    from rapidfuzz.distance import Levenshtein

    if not wanted or not heard:
        return _LOST * (len(wanted) + len(heard))
    distance = float(Levenshtein.normalized_distance("".join(wanted), "".join(heard)))
    return distance if len(wanted) == len(heard) else _JOINED * distance


def main(
    bundle: Annotated[Path | None, typer.Option(help="Default: the starter voice.")] = None,
    voice: Annotated[str | None, typer.Option(help="Default: the bundle's first.")] = None,
    kinds: Annotated[str | None, typer.Option(help="Only these, e.g. money,date.")] = None,
    teacher: Annotated[bool, typer.Option("--teacher", help="Listen to the teacher instead (extra train).")] = False,
    front_end: Annotated[bool, typer.Option("--front-end", help="Only the front end; no sound.")] = False,
    seed: int = 0,
) -> None:
    """Check every sentence; ends with one JSON object. Exit code 1 when the front end is wrong."""
    frontend = Frontend()
    chosen = [each for each in hard_sentences() if kinds is None or each.kind in kinds.split(",")]
    wrong = {each.text: fault for each in chosen if (fault := front_end_fault(frontend, each))}
    for text, fault in wrong.items():
        print(f"front end: {text}: {fault}")
    report: dict[str, Any] = {"sentences": len(chosen), "front_end": len(wrong)}
    if not front_end:
        report |= _listened(frontend, chosen, _speaker(bundle, voice, seed, teacher))
    print(json.dumps(report, ensure_ascii=False))
    raise typer.Exit(bool(wrong))


def _speaker(bundle: Path | None, voice: str | None, seed: int, teacher: bool) -> Any:
    """A function from a text to its speech, [N] mono at 24 kHz."""
    from models.training.bundle import ENTRIES
    from models.training.teacher import Teacher, phonemise
    from tts_spec.synthesizer import Synthesizer

    if teacher:
        network = Teacher.load()
        name = {entry.name: name for name, entry in ENTRIES.items()}[voice or "heart"]
        return lambda text: network.speak(phonemise(text, name), name).pcm
    synthesizer = Synthesizer.load(bundle)
    return lambda text: synthesizer.speak(text, voice=voice, seed=seed).pcm


def _listened(frontend: Frontend, sentences: Sequence[HardSentence], speak: Any) -> dict[str, Any]:
    """Speak and hear all; a line for each that is not whole, and one a minute."""
    failed: list[dict[str, Any]] = []
    by_kind: dict[str, list[int]] = {}
    logged = time.monotonic()
    for done, each in enumerate(sentences):
        pcm: Pcm = speak(each.text)
        transcript = transcribe(pcm, 24_000)
        found = listen(frontend, each, transcript)
        counts = by_kind.setdefault(each.kind, [0, 0])
        counts[0] += 1
        if not found.whole:
            counts[1] += 1
            failed.append({"kind": each.kind, "text": each.text, "transcript": transcript, "missing": found.missing,
                           "extra": found.extra, "other": found.other})  # fmt: skip
            print(
                f"{each.kind}: {each.text} -> {transcript} | missing {found.missing} extra {found.extra} other {found.other}"
            )
        if time.monotonic() - logged >= 60:
            logged = time.monotonic()
            print(f"{done + 1} of {len(sentences)}, {len(failed)} not whole", flush=True)
    return {
        "not_whole": len(failed),
        "by_kind": {kind: f"{bad} of {count}" for kind, (count, bad) in by_kind.items()},
        "failed": failed,
    }


if __name__ == "__main__":
    typer.run(main)
