"""Lets the target speak the training texts itself, as deployed: the data on which drafters are trained to match it.

    python -m models.training.on_policy PACKED TARGET_CHECKPOINT OUT --utterances 2000

OUT then has what ``WovenCorpus`` reads: ``index.json`` and ``codes.npz``. Plain decoding, many streams a pass. With ``--fresh`` it speaks
other sentences of the corpus' sources than the corpus has: there are ten times as many, and no teacher is needed. Knows no drafter.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import typer
from rich.progress import track

from models.lm_stream import LmBatch, LmStream, Request
from models.training.bundle import caps
from models.training.corpus import VOICES as SPOKEN_BY
from models.training.corpus import parse_voices, plan
from models.training.dataset import UNIT, Row, read_rows
from models.training.drafter import load_target
from models.training.packages import default_cache
from models.training.target import VOICES
from models.training.teacher import MAX_PHONEMES, phonemise
from models.training.texts import load_texts
from models.training.woven import sentence_windows
from tts_spec.speculate.round import StreamState
from tts_spec.speculate.sampling import Sampler, SamplingOptions
from tts_spec.speculate.script import Script, Vocabulary
from tts_spec.text.symbols import START, STOP, symbol_ids

STREAMS = 16


@dataclass
class _Speaker:
    """One utterance being spoken."""

    row: Row
    stream: LmStream
    script: Script
    sampler: Sampler
    state: StreamState = field(default_factory=StreamState)
    tokens: list[int] = field(default_factory=list)
    durations: list[int] = field(default_factory=list)


def speak(
    packed: Path,
    target_checkpoint: Path,
    out: Path,
    utterances: int = 2000,
    temperature: float = 0.5,
    seed: int = 1,
    fresh: bool = False,
) -> None:
    """Write ``utterances`` of the corpus, or ``fresh`` ones, as the target says them; never a held-out one."""
    torch.set_grad_enabled(False)
    target = load_target(target_checkpoint).to(torch.bfloat16)
    batch = LmBatch(target, STREAMS)
    voices = VOICES[: target.config.voices]
    rows = [row for row in read_rows(packed) if row.id % 100 and row.voice in voices]
    longest = caps(rows)
    if fresh:
        rows = list(islice((row for row in fresh_rows(seed) if row.voice in voices), utterances))
    random.Random(seed).shuffle(rows)
    vocabulary = Vocabulary(target.config.codebooks, target.config.codebook_size)
    waiting = iter(track(rows[:utterances], "speaking"))
    live: list[_Speaker] = []
    done: list[_Speaker] = []

    def start(row: Row) -> _Speaker:
        ids = [START, *symbol_ids(row.phonemes), STOP]
        stream = batch.open([float(voice == row.voice) for voice in voices], row.speed)
        stream.extend(sentence_windows(ids, set()).tolist())
        script = Script.empty(vocabulary)
        for index, symbol in enumerate(ids):
            script.append(round(longest[symbol] / min(row.speed, 1.0)), end=index == len(ids) - 1)
        options = SamplingOptions(temperature)
        return _Speaker(row, stream, script, Sampler(options, vocabulary, seed + row.id), durations=[0] * len(ids))

    while True:
        while len(live) < STREAMS and (row := next(waiting, None)) is not None:
            live.append(start(row))
        if not live:
            break
        requests = [Request(each.stream, each.state.inputs[-1:], each.state.position) for each in live]
        for each, logits in zip(live, batch.forward(requests), strict=True):
            state = each.state
            decision = each.sampler.choose(logits[0], each.script.allowed(state.script), state.inputs, state.position)
            if decision < vocabulary.advance:
                each.tokens.append(decision % vocabulary.codebook_size)
                each.durations[state.script.phoneme] += state.script.due == 0
            each.state = state.after(each.script, decision)
            if each.script.waits(each.state.script):
                each.stream.close()
                done.append(each)
        live = [each for each in live if not each.script.waits(each.state.script)]
    _write(out, done, vocabulary.codebooks)


def fresh_rows(seed: int) -> Iterator[Row]:
    """Sentences with their phonemes, without end; durations and sound are not known. Another seed than the corpus' gives others."""
    for item in plan(load_texts(default_cache()), parse_voices(SPOKEN_BY), seed):
        phonemes = phonemise(item.text, item.voice)
        if item.id % 100 and 1 <= len(phonemes) <= MAX_PHONEMES:
            yield Row(item.id, item.voice, item.speed, item.text, phonemes, (), 0, 0)


def _write(out: Path, done: list[_Speaker], codebooks: int) -> None:
    codes = [np.array(each.tokens, np.uint16).reshape(-1, codebooks) for each in done]
    starts = np.cumsum([0] + [len(each) for each in codes])
    rows = [
        replace(each.row, durations=tuple(each.durations), start=int(start) * UNIT, samples=len(made) * UNIT)
        for each, start, made in zip(done, starts, codes, strict=False)
    ]
    out.mkdir(parents=True, exist_ok=True)
    (out / "index.json").write_text(json.dumps([asdict(row) for row in rows]))
    lead = np.array([each.durations[0] for each in done], np.uint8)
    np.savez(out / "codes.npz", codes=np.concatenate(codes), lead=lead)
    print(f"{len(done)} utterances, {sum(len(each) for each in codes)} frames")


if __name__ == "__main__":
    typer.run(speak)
