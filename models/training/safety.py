"""Lets a bundle speak many sentences it never learnt and looks for what must not happen in a stream.

    python -m models.training.safety BUNDLE OUT.jsonl --n 2000

How long a sentence and each of its words should last says the teacher's own network (``TeacherPace``), exactly. Counted are sentences and
words much shorter or longer than that, phonemes that reached their cap, and silence or noise without end. One line of OUT a sentence; a
stopped run goes on where it was. The last line of output is one JSON object. Knows lengths and levels; does not know what was understood.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer

from models.evaluation.noise import longest_noise_s
from models.evaluation.pauses import measure_pauses
from models.training.bundle import ENTRIES
from models.training.corpus_reader import UNIT
from models.training.packages import default_cache
from models.training.teacher import TeacherPace, phonemise
from models.training.texts import is_held_out, load_texts
from tts_spec.engine.plan import plan
from tts_spec.engine.stream import SpeechStream
from tts_spec.speculate.round import Round
from tts_spec.synthesizer import Synthesizer
from tts_spec.text.symbols import START, STOP, SYMBOLS
from tts_spec.types import SpeakOptions, SpeechError

SENTENCE_RATIOS = (0.6, 1.6)  # of a sentence's length to the teacher's
WORD_RATIOS = (0.35, 3.0)  # of a word's
FLOOR = 3  # frames added to both sides of a word's ratio: a word of two frames may well have one
SILENCE_S = 1.2  # longest allowed within a sentence, at speed 1
TAIL_S = 1.5  # after it
NOISE_S = 0.5
SYMBOL_NAMES = dict(enumerate(SYMBOLS)) | {START: "START", STOP: "STOP"}


@dataclass(frozen=True, slots=True)
class Case:
    """One sentence to be spoken."""

    index: int
    text: str
    voice: str
    speed: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it went. Lengths are in seconds; without the pads of silence around the sentence where not said otherwise."""

    index: int
    text: str
    voice: str
    speed: float
    seconds: float
    teacher_s: float
    words: list[float] | None  # see ``word_ratios``; None where the two were not given the same phonemes
    capped: list[str]  # phonemes that reached their cap, the pads among them
    silence_s: float  # the longest within the sentence
    tail_s: float
    noise_s: float  # the longest

    @property
    def faults(self) -> list[str]:
        """What must not happen and did."""
        ratio, words = self.seconds / self.teacher_s, self.words or [1.0]
        slow = 1 / min(self.speed, 1.0)
        found = {
            "sentence short": ratio < SENTENCE_RATIOS[0],
            "sentence long": ratio > SENTENCE_RATIOS[1],
            "word short": min(words) < WORD_RATIOS[0],
            "word long": max(words) > WORD_RATIOS[1],
            "early end": words[-1] < WORD_RATIOS[0],
            "capped": bool(self.capped),
            "silence": self.silence_s > SILENCE_S * slow or self.tail_s > TAIL_S * slow,
            "noise": self.noise_s > NOISE_S * slow,
        }
        return [name for name, holds in found.items() if holds]


class CountedStream(SpeechStream):
    """A stream that keeps how many frames each of its phonemes got."""

    def __init__(self, synthesizer: Synthesizer, options: SpeakOptions) -> None:
        super().__init__(synthesizer.bundle, synthesizer.frontend, plan(synthesizer.bundle.manifest, options))
        self._counts = [0]  # one more than the phonemes that are over

    def run(self, text: str) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Speak ``text``: its audio."""
        self.text(text)
        self.end()
        chunks = []
        while not self.finished:
            if (chunk := self.step()) is not None:
                chunks.append(chunk.pcm)
        return np.concatenate(chunks)

    def _commit(self, done: Round) -> None:
        for decision in done.decisions:
            if decision >= self._vocabulary.advance:
                self._counts.append(0)
            elif decision < self._vocabulary.codebook_size:  # the first codebook of a frame
                self._counts[-1] += 1
        super()._commit(done)

    @property
    def frames(self) -> list[int]:
        """Frames of each phoneme spoken."""
        return self._counts[:-1]

    @property
    def symbols(self) -> list[int]:
        """Ids of the phonemes spoken."""
        return [phoneme.symbol for phoneme in self._phonemes]

    @property
    def capped(self) -> list[str]:
        """Phonemes that got as many frames as they may."""
        pairs = zip(self.frames, self._script.caps, self.symbols, strict=True)
        return [SYMBOL_NAMES[symbol] for frames, cap, symbol in pairs if frames >= cap]


def cases(texts: Mapping[str, Sequence[str]], voices: Sequence[str], n: int, seed: int) -> list[Case]:
    """``n`` different sentences of ``texts`` that are held out, voices and speeds as in the corpus: the same for the same seed.

    Raises SpeechError when there are not so many.
    """
    held_out = sorted({sentence for sentences in texts.values() for sentence in sentences if is_held_out(sentence)})
    if not 1 <= n <= len(held_out):
        raise SpeechError("invalid_value", f"n is {n}; allowed: a whole number from 1 to {len(held_out)}", "n")
    rng = random.Random(seed)
    return [
        Case(index, text, rng.choice(voices), 1.0 if rng.random() < 0.6 else round(rng.uniform(0.8, 1.3), 2))
        for index, text in enumerate(rng.sample(held_out, n))
    ]


def word_ratios(
    symbols: Sequence[int], frames: Sequence[int], phonemes: str, durations: Sequence[int]
) -> list[float] | None:
    """Length of each word to the teacher's; pads and what begins another sentence do not count. None for other phonemes.

    Args:
        symbols: ids of ours, with pads; ``frames`` of each.
        phonemes: the teacher's; ``durations`` in frames, one more at both ends.
    """
    spoken = [(SYMBOL_NAMES[i], n) for i, n in zip(symbols, frames, strict=True) if i not in (START, STOP)]
    taught = list(zip(phonemes, durations[1:-1], strict=True))
    ours, theirs = (_words(each) for each in (spoken, taught))
    if [sound for sound, _ in ours] != [sound for sound, _ in theirs]:
        return None
    return [(own + FLOOR) / (other + FLOOR) for (_, own), (_, other) in zip(ours, theirs, strict=True)]


def _words(phonemes: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Sounds and frames of each word; marks are left out, as their pauses are free."""
    words: list[tuple[str, int]] = []
    begun = False
    for symbol, frames in phonemes:
        if not (symbol.isalpha() or symbol in "ˈˌːʰʲᵊᵻ"):
            begun = False
        elif begun:
            words[-1] = words[-1][0] + symbol, words[-1][1] + frames
        else:
            words.append((symbol, frames))
            begun = True
    return words


def speak(synthesizer: Synthesizer, pace: TeacherPace, case: Case) -> Outcome:
    """Speak one case; the seed is its index."""
    teacher = {entry.name: name for name, entry in ENTRIES.items()}[case.voice]
    phonemes = phonemise(case.text, teacher)
    durations = pace.durations(phonemes, teacher, case.speed)
    stream = CountedStream(synthesizer, SpeakOptions(voice=case.voice, speed=case.speed, seed=case.index))
    pcm = stream.run(case.text)
    pauses = measure_pauses(pcm, synthesizer.sample_rate)
    frame_s = synthesizer.bundle.codec.frame_samples / synthesizer.sample_rate
    return Outcome(
        **asdict(case),
        seconds=frame_s * sum(stream.frames[1:-1]),
        teacher_s=sum(durations[1:-1]) * UNIT / synthesizer.sample_rate,
        words=word_ratios(stream.symbols, stream.frames, phonemes, durations),
        capped=stream.capped,
        silence_s=pauses.longest_s,
        tail_s=pauses.tail_s,
        noise_s=longest_noise_s(pcm, synthesizer.sample_rate),
    )


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Counts of each fault over at least one sentence, and the range of lengths."""
    ratios = [each.seconds / each.teacher_s for each in outcomes]
    faults = [fault for each in outcomes for fault in each.faults]
    words = [word for each in outcomes for word in each.words or ()]
    return {
        "sentences": len(outcomes),
        "duration_ratio": round(sum(ratios) / len(ratios), 4),
        "duration_ratio_range": [round(min(ratios), 3), round(max(ratios), 3)],
        "words": len(words),
        "word_ratio_range": [round(min(words), 3), round(max(words), 3)] if words else None,
        "words_outside": sum(not WORD_RATIOS[0] <= word <= WORD_RATIOS[1] for word in words),
        "other_phonemes": sum(each.words is None for each in outcomes),
        "faulty_sentences": sum(bool(each.faults) for each in outcomes),
        "faults": {name: faults.count(name) for name in sorted(set(faults))},
    }


def read(path: Path, recipe: Mapping[str, Any]) -> list[Outcome]:
    """Outcomes of an earlier run, none where there was none. Raises SpeechError when it was another one."""
    if not path.exists():
        path.write_text(json.dumps(recipe) + "\n")
        return []
    whole = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    if not whole or json.loads(whole[0]) != recipe:
        raise SpeechError("invalid_value", f"{path} is of another bundle, seed or n; choose a new file", "out")
    path.write_text("".join(whole))  # the last line may be half
    return [Outcome(**json.loads(line)) for line in whole[1:]]


def main(bundle: Path, out: Path, n: int = 2000, seed: int = 0, packages: Path | None = None) -> None:
    """Speak ``n`` sentences; fetches the packages of the corpus for their texts."""
    synthesizer = Synthesizer.load(bundle)
    manifest = synthesizer.bundle.manifest
    files = {name: entry.sha256 for name, entry in manifest.files.items()}
    outcomes = read(out, {"n": n, "seed": seed, "files": files, "sampling": asdict(manifest.sampling)})
    pace = TeacherPace.load(packages)
    planned = cases(load_texts(packages or default_cache()), [voice.name for voice in synthesizer.voices], n, seed)
    logged = time.monotonic()
    with out.open("a") as file:
        for case in planned[len(outcomes) :]:
            outcomes.append(speak(synthesizer, pace, case))
            file.write(json.dumps(asdict(outcomes[-1])) + "\n")
            file.flush()
            if time.monotonic() - logged >= 60:
                logged = time.monotonic()
                found = summary(outcomes)
                print(f"{len(outcomes)} of {n}, faulty {found['faulty_sentences']}: {found['faults']}", flush=True)
    for each in outcomes:
        if each.faults:
            print(
                f"{each.index} {each.voice} {each.speed:g} {', '.join(each.faults)} {''.join(each.capped)}: {each.text}"
            )
    print(json.dumps(summary(outcomes)))


if __name__ == "__main__":
    typer.run(main)
