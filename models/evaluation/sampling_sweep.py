"""Which sampling a bundle should have by default: words, sound and speed of the same sentences at each setting.

    python -m models.evaluation.sampling_sweep models/starter --n 30 --temperatures 0.3,0.5,0.7 --top-ps 1,0.9

Settings take turns on every sentence, so all have had the same ones when it is stopped. One line a minute; the last line of output is one
JSON object. Only compares settings with each other: the teacher stands in ``tts-spec bench quality``.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from models.evaluation.mos import distill_mos
from models.evaluation.report import LOST_ABOVE
from models.evaluation.sentences import held_out_sentences
from models.evaluation.transcribe import Errors, transcribe, wer
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import SpeakOptions, Speech, SpeechError


@dataclass(frozen=True, slots=True)
class Setting:
    """What is varied; the rest is the bundle's own."""

    temperature: float
    top_p: float


@dataclass(slots=True)
class Tally:
    """What one setting came to so far."""

    words: Errors = field(default_factory=Errors)
    lost: list[bool] = field(default_factory=list)
    mos: list[float] = field(default_factory=list)
    tokens: int = 0
    passes: int = 0
    audio_s: float = 0.0

    def add(self, sentence: str, speech: Speech) -> None:
        """Count one sentence; one with too little sound to be measured is lost, with all its words."""
        self.tokens += speech.stats.tokens
        self.passes += speech.stats.target_passes
        self.audio_s += speech.stats.audio_s
        try:
            errors = wer(sentence, transcribe(speech.pcm, speech.sample_rate))
            self.mos.append(distill_mos(speech.pcm, speech.sample_rate))
        except SpeechError:
            errors = wer(sentence, "")
        self.words += errors
        self.lost.append(errors.rate > LOST_ABOVE)

    def as_dict(self) -> dict[str, float | None]:
        return {
            "wer": round(self.words.rate, 4),
            "lost": round(fmean(self.lost), 4),
            "distill_mos": round(fmean(self.mos), 3) if self.mos else None,
            "tau": round(self.tokens / max(self.passes, 1), 3),
            "audio_s": round(self.audio_s, 1),
        }


def sweep(synthesizer: Synthesizer, settings: Sequence[Setting], n: int) -> Mapping[Setting, Tally]:
    """Every setting on the first ``n`` held-out sentences, voices in turn, seed = the sentence's number."""
    tallies = {setting: Tally() for setting in settings}
    voices = [voice.name for voice in synthesizer.voices]
    logged = time.monotonic()
    for index, sentence in enumerate(held_out_sentences()[:n]):
        for setting, tally in tallies.items():
            options = SpeakOptions(
                voice=voices[index % len(voices)], seed=index, temperature=setting.temperature, top_p=setting.top_p
            )
            tally.add(sentence, synthesizer.speak(sentence, options))
        if time.monotonic() - logged >= 60:
            logged = time.monotonic()
            found = ", ".join(f"T {s.temperature:g} p {s.top_p:g} {t.words.rate:.1%}" for s, t in tallies.items())
            print(f"{index + 1} of {n}: {found}", flush=True)
    return tallies


def main(bundle: Path, n: int = 30, temperatures: str = "0.3,0.4,0.5,0.6,0.7", top_ps: str = "1,0.95,0.9,0.8") -> None:
    """Sweep all pairs of the two."""
    pairs = itertools.product(_numbers("temperatures", temperatures), _numbers("top_ps", top_ps))
    tallies = sweep(Synthesizer.load(bundle), [Setting(*pair) for pair in pairs], n)
    rows: list[dict[str, Any]] = [
        {"temperature": setting.temperature, "top_p": setting.top_p, **tally.as_dict()}
        for setting, tally in tallies.items()
    ]
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console(stderr=True).print(table)
    print(json.dumps({"n": n, "rows": rows}))


def _numbers(name: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{name} is {text!r}; allowed: numbers like 0.3,0.5") from None


if __name__ == "__main__":
    typer.run(main)
