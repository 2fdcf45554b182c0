"""Held-out sentences spoken by us, by the teacher, and by the teacher through our codec: words and sound side by side.

Needs the extras ``eval`` and ``train``. Knows metrics and clips; knows nothing of how speech is made.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from models.evaluation.keep import Kept
from models.evaluation.report import ClipScore, score_clip
from models.evaluation.sentences import held_out_sentences, kinds
from models.training.bundle import ENTRIES
from models.training.teacher import Teacher, phonemise
from tts_spec.bench.quality_plot import plot_clips
from tts_spec.bench.quality_report import SYSTEMS, Measured, print_report, summary
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import Pcm, SpeechError

TEACHER_NAMES = {entry.name: name for name, entry in ENTRIES.items()}
PLOTTED = 4


@dataclass(frozen=True, slots=True)
class QualityOptions:
    """What is spoken: the first ``n`` held-out sentences, voices and then speeds in turn, seed = the sentence's number."""

    n: int = 60
    speeds: tuple[float, ...] = (1.0, 1.0, 1.0, 0.8, 1.25)
    voices: tuple[str, ...] | None = None  # default: those of the bundle
    keep: Path | None = None  # folder of what was measured before
    plot: Path | None = None  # PNG

    def __post_init__(self) -> None:
        most = len(held_out_sentences())
        if not 1 <= self.n <= most:
            raise SpeechError("invalid_value", f"n is {self.n}; allowed: a whole number from 1 to {most}", "n")
        if not self.speeds or not all(0.7 <= speed <= 1.4 for speed in self.speeds):
            raise SpeechError("invalid_value", f"speeds is {self.speeds}; allowed: numbers from 0.7 to 1.4", "speeds")


def run(synthesizer: Synthesizer, options: QualityOptions, console: Console) -> dict[str, Any]:
    """Score them; the result is that of ``quality_report.summary``. Prints tables, and a line a minute on the way.

    Raises SpeechError for a voice that the bundle or the teacher does not have.
    """
    voices = options.voices or tuple(voice.name for voice in synthesizer.voices)
    if unknown := [voice for voice in voices if voice not in TEACHER_NAMES]:
        raise SpeechError(
            "unknown_voice", f"voices has {unknown}; the teacher has: {', '.join(TEACHER_NAMES)}", "voice"
        )
    bench = _Bench(synthesizer, Kept(options.keep))
    measured: list[Measured] = []
    logged = time.monotonic()
    for index, sentence in enumerate(held_out_sentences()[: options.n]):
        speed = options.speeds[index // len(voices) % len(options.speeds)]
        measured.append(bench.measure(index, sentence, voices[index % len(voices)], speed))
        if time.monotonic() - logged >= 60:
            logged = time.monotonic()
            console.print(f"{index + 1} of {options.n} sentences")
    print_report(measured, console)
    if options.plot is not None:
        plot_clips(measured[:PLOTTED], [bench.clips[each.index] for each in measured[:PLOTTED]], options.plot)
    return summary(measured)


class _Bench:
    """Speaks a sentence three ways and scores each."""

    def __init__(self, synthesizer: Synthesizer, kept: Kept) -> None:
        self._synthesizer = synthesizer
        self._kept = kept
        self._teacher: Teacher | None = None  # not needed where all its clips are kept
        self._codec_hash = synthesizer.bundle.manifest.files["codec.safetensors"].sha256
        synthesizer.speak("Warm.")  # the first stream compiles
        self.clips: dict[int, tuple[Pcm, Pcm, Pcm]] = {}  # of the first PLOTTED: in the order of SYSTEMS

    def measure(self, index: int, sentence: str, voice: str, speed: float) -> Measured:
        """Speak and score one sentence; the seed is ``index``."""
        rate = self._synthesizer.sample_rate
        said = f"{voice} {speed:g} {sentence}"
        real = self._kept.clip(f"teacher {said}", lambda: self._taught(sentence, voice, speed))
        speech = self._synthesizer.speak(sentence, voice=voice, speed=speed, seed=index)
        plain = self._synthesizer.speak(sentence, voice=voice, speed=speed, seed=index, drafter="none")

        def through_codec() -> Pcm:
            codec = self._synthesizer.bundle.codec
            padded = np.pad(real, (0, -len(real) % codec.frame_samples))
            again: Pcm = codec.decode(codec.encode(torch.from_numpy(padded)[None]))[0].numpy()
            return again

        ours: ClipScore | None = None
        try:
            key = f"ours {speech.stats.token_hash} {self._codec_hash} {said}"
            ours = self._kept.score(key, lambda: score_clip(speech.pcm, rate, sentence, reference_pcm=real))
        except SpeechError:  # too short to be measured
            pass
        taught = self._kept.score(f"teacher {said}", lambda: score_clip(real, rate, sentence))
        coded = self._kept.score(
            f"codec {self._codec_hash} {said}",
            lambda: score_clip(through_codec(), rate, sentence, reference_pcm=real),
        )
        if index < PLOTTED:
            self.clips[index] = (speech.pcm, real, through_codec())
        return Measured(
            index=index,
            sentence=sentence,
            voice=voice,
            speed=speed,
            kinds=kinds(sentence),
            scores=dict(zip(SYSTEMS, (ours, taught, coded), strict=True)),
            stats=speech.stats,
            same_tokens=speech.stats.token_hash == plain.stats.token_hash,
        )

    def _taught(self, sentence: str, voice: str, speed: float) -> tuple[Pcm, int]:
        self._teacher = self._teacher or Teacher.load()
        name = TEACHER_NAMES[voice]
        return self._teacher.speak(phonemise(sentence, name), name, speed).pcm, self._synthesizer.sample_rate
