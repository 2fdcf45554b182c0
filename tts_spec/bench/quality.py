"""Held-out sentences spoken by us, by the teacher, and by the teacher through our codec: words and sound side by side.

Needs the extras ``eval`` and ``train``. Knows metrics and clips; knows nothing of how speech is made.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from models.evaluation.report import ClipScore, score_clip, summarise
from models.evaluation.sentences import held_out_sentences
from models.training.bundle import ENTRIES
from models.training.teacher import Teacher, phonemise
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import Pcm, SpeechError

TEACHER_NAMES = {entry.name: name for name, entry in ENTRIES.items()}


def run(synthesizer: Synthesizer, n: int, console: Console) -> dict[str, Any]:
    """Score the first ``n`` held-out sentences, voices in turn, default settings, seed = the sentence's number."""
    sentences = held_out_sentences()[:n]
    voices = [voice.name for voice in synthesizer.voices]
    teacher = Teacher.load()
    codec = synthesizer.bundle.codec
    ours: list[ClipScore] = []
    taught: list[ClipScore] = []
    coded: list[ClipScore] = []
    ratios: list[float] = []
    failed: list[str] = []
    for index, sentence in enumerate(track(sentences, console=console, description="speaking")):
        voice = voices[index % len(voices)]
        teacher_voice = TEACHER_NAMES[voice]
        real = teacher.speak(phonemise(sentence, teacher_voice), teacher_voice).pcm
        padded = np.pad(real, (0, -len(real) % codec.frame_samples))
        again: Pcm = codec.decode(codec.encode(torch.from_numpy(padded)[None]))[0].numpy()
        speech = synthesizer.speak(sentence, voice=voice, seed=index)
        rate = synthesizer.sample_rate
        try:
            ours.append(score_clip(speech.pcm, rate, sentence, reference_pcm=real))
        except SpeechError as error:
            failed.append(f"{sentence}: {error}")
            continue
        taught.append(score_clip(real, rate, sentence))
        coded.append(score_clip(again, rate, sentence, reference_pcm=real))
        ratios.append(_spoken_s(speech.pcm, rate) / _spoken_s(real, rate))
    summaries = {"ours": summarise(ours), "teacher": summarise(taught), "codec": summarise(coded)}
    _print(summaries, console)
    for score, ratio in zip(ours, ratios, strict=True):
        if score.words.rate > 0.5 or not 0.6 <= ratio <= 1.6:
            console.print(
                f"{score.words.rate:.0%} of words, {ratio:.2f}x: {score.reference} -> {score.heard}", markup=False
            )
    return {
        "wer": summaries["ours"].wer,
        "wer_teacher": summaries["teacher"].wer,
        "wer_codec": summaries["codec"].wer,
        "duration_ratio": sum(ratios) / len(ratios),
        "duration_ratio_range": [min(ratios), max(ratios)],
        "failed": failed,
        **{name: summary.as_dict() for name, summary in summaries.items()},
    }


def _spoken_s(pcm: Pcm, rate: int) -> float:
    """Seconds from the first to the last 20 ms louder than -45 dBFS: what is said, without the silence around it."""
    window = rate // 50
    loud = np.sqrt(np.mean(np.square(pcm[: len(pcm) // window * window].reshape(-1, window)), axis=1)) > 10 ** (
        -45 / 20
    )
    where = np.flatnonzero(loud)
    return float(where[-1] - where[0] + 1) / 50 if len(where) else 0.0


def _print(summaries: dict[str, Any], console: Console) -> None:
    table = Table("", "WER %", "CER %", "DistillMOS", "DNSMOS ovrl", "p808", "same voice", "F0 spread st")
    for name, summary in summaries.items():
        row = summary.as_dict()
        table.add_row(
            name,
            f"{100 * row['wer']:.1f}",
            f"{100 * row['cer']:.1f}",
            *(f"{row[key]:.2f}" for key in ("distill_mos", "dnsmos_ovrl", "dnsmos_p808")),
            *("" if row[key] is None else f"{row[key]:.2f}" for key in ("similarity", "spread_semitones")),
        )
    console.print(table)
