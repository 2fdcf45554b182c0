"""Minutes of text in one stream: do voice, level and pace drift, does it click, does memory grow?

    python -m models.training.long_form --minutes 5

The text is made of held-out sentences; its first sentences come again at its end, so that beginning and end compare the same words. The
speech goes to a file as it comes, and memory is looked at every minute of speech. The last line of output is one JSON object, with what
issue 5 requires. Knows sound; does not know what was understood.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import soundfile
import torch
import torchaudio
import typer

from models.evaluation.seams import CLICK, seam_contrasts
from models.evaluation.sentences import held_out_sentences
from models.evaluation.speaker import speaker_similarity
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import Pcm, SpeakOptions, Word

WINDOW_S = 10.0  # beginning and end that are compared
CHARS_PER_S = 14.0  # of speech: how much text fills the minutes
FRAME_CHARS = 250  # text at both ends that is the same
PIECE = 40  # characters the text comes in
MIN_SIMILARITY, MAX_LOUDNESS_LU, MAX_PACE, MAX_GROWTH_MB = 0.85, 1.5, 0.15, 20.0


@dataclass(frozen=True, slots=True)
class Spoken:
    """A long stream. ``seams`` are the first samples of chunks, ``memory_mb`` resident memory at each minute of speech and at the end."""

    pcm: Pcm
    sample_rate: int
    words: list[Word]
    seams: list[int]
    memory_mb: list[float]
    rtf: float


def long_text(minutes: float, sentences: Sequence[str]) -> str:
    """About so many minutes of text; beginning and end are the same sentences. Sentences come again where they run out."""
    frame: list[str] = []
    body: list[str] = []
    while sum(map(len, frame)) < FRAME_CHARS:
        frame.append(sentences[len(frame)])
    wanted = minutes * 60 * CHARS_PER_S - 2 * sum(map(len, frame))
    place = len(frame)
    while sum(map(len, body)) < wanted:
        body.append(sentences[place % len(sentences)])
        place += 1
    return " ".join([*frame, *body, *frame])


def speak(synthesizer: Synthesizer, text: str, options: SpeakOptions, sound: Path) -> Spoken:
    """Speak ``text`` as one stream, piece by piece, into ``sound`` (WAV)."""
    for _ in synthesizer.stream("Something to warm up with.", options):
        pass
    words: list[Word] = []
    seams: list[int] = []
    memory = [_memory_mb()]
    samples, logged = 0, time.monotonic()
    rate = synthesizer.sample_rate
    rtf = 0.0
    with soundfile.SoundFile(sound, "w", rate, 1, "FLOAT") as file:
        for chunk in synthesizer.stream(_pieces(text), options):
            if samples and len(chunk.pcm):
                seams.append(samples)
            file.write(chunk.pcm)
            samples += len(chunk.pcm)
            words += chunk.words
            if samples // (60 * rate) >= len(memory):
                memory.append(_memory_mb())
            if time.monotonic() - logged >= 60:
                logged = time.monotonic()
                print(f"{samples / rate:.0f} s of speech, {memory[-1]:.0f} MB", flush=True)
            if chunk.stats is not None:
                rtf = chunk.stats.rtf
    memory.append(_memory_mb())
    pcm: Pcm = soundfile.read(sound, dtype="float32")[0]
    return Spoken(pcm, rate, words, seams, memory, rtf)


def measure(spoken: Spoken) -> dict[str, Any]:
    """What came of it; the first and last ``WINDOW_S`` are compared, and each ten seconds' voice with the first."""
    window = int(WINDOW_S * spoken.sample_rate)
    first, last = spoken.pcm[:window], spoken.pcm[-window:]
    similarity = speaker_similarity(first, last, spoken.sample_rate)
    between = [
        round(speaker_similarity(first, spoken.pcm[at : at + window], spoken.sample_rate), 3)
        for at in range(window, len(spoken.pcm) - window, window)
    ]
    loudness = [_loudness(part, spoken.sample_rate) for part in (first, last)]
    paces = [pace(spoken.words, start) for start in (0.0, len(spoken.pcm) / spoken.sample_rate - WINDOW_S)]
    contrasts = seam_contrasts(spoken.pcm, spoken.sample_rate, spoken.seams)
    clicks = sum(contrast > CLICK for contrast in contrasts)
    growth = spoken.memory_mb[-1] - spoken.memory_mb[1]
    return {
        "seconds": round(len(spoken.pcm) / spoken.sample_rate, 1),
        "rtf": round(spoken.rtf, 3),
        "similarity": round(similarity, 3),
        "similarity_by_10_s": between,
        "loudness_lufs": [round(value, 2) for value in loudness],
        "pace_chars_per_s": [round(value, 2) for value in paces],
        "seams": len(contrasts),
        "clicks": clicks,
        "largest_seam": round(max(contrasts, default=0.0), 3),
        "memory_mb": [round(value, 1) for value in spoken.memory_mb],
        "met": {
            "similarity": similarity >= MIN_SIMILARITY,
            "loudness": abs(loudness[0] - loudness[1]) <= MAX_LOUDNESS_LU,
            "pace": abs(paces[1] / paces[0] - 1) <= MAX_PACE,
            "clicks": clicks == 0,
            "memory": growth <= MAX_GROWTH_MB,
        },
    }


def pace(words: Sequence[Word], start_s: float) -> float:
    """Characters a second of the words that lie in the ``WINDOW_S`` from ``start_s``, pauses between them not counted; 0 for none."""
    within = [word for word in words if start_s <= word.start_s and word.end_s <= start_s + WINDOW_S]
    seconds = sum(word.end_s - word.start_s for word in within)
    return sum(len(word.text) for word in within) / seconds if seconds else 0.0


def _pieces(text: str) -> Iterator[str]:
    for at in range(0, len(text), PIECE):
        yield text[at : at + PIECE]


def _loudness(pcm: Pcm, rate: int) -> float:
    """LUFS, gated (ITU-R BS.1770-4)."""
    return float(torchaudio.functional.loudness(torch.from_numpy(pcm)[None], rate))


def _memory_mb() -> float:
    """Resident memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmRSS; this command needs Linux")


def main(
    bundle: Annotated[Path | None, typer.Option(help="Default: the starter voice.")] = None,
    minutes: Annotated[float, typer.Option(min=1.0, help="Of speech, about.")] = 5.0,
    voice: str | None = None,
    seed: int = 0,
    out: Annotated[Path | None, typer.Option(help="Keep the speech as this WAV file.")] = None,
) -> None:
    """Speak for minutes and measure; exit code 1 where something is not met."""
    synthesizer = Synthesizer.load(bundle)
    text = long_text(minutes, held_out_sentences())
    with tempfile.TemporaryDirectory() as folder:
        spoken = speak(synthesizer, text, SpeakOptions(voice=voice, seed=seed), out or Path(folder) / "long.wav")
    found = measure(spoken)
    print(json.dumps(found))
    raise typer.Exit(not all(found["met"].values()))


if __name__ == "__main__":
    typer.run(main)
