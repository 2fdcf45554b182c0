"""Plain decoding against each drafter on the same sentences, interleaved, warm, batch 1. Only rounds are timed: no codec, no text.

Knows rounds and clocks; prints a table and returns the rows.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from models.evaluation.sentences import held_out_sentences
from tts_spec.engine.plan import drafter_choices, plan
from tts_spec.engine.policy import Policy
from tts_spec.engine.stream import SpeechStream, StreamDrafter
from tts_spec.speculate.round import Draft, StreamState
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import SpeakOptions


@dataclass(slots=True)
class _Tally:
    """Sums of one drafter."""

    seconds: list[float] = field(default_factory=list)  # a repeat each, over all sentences
    work_s: float = 0.0
    audio_s: float = 0.0
    first_audio_ms: list[float] = field(default_factory=list)
    tokens: int = 0
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    tried: list[int] = field(default_factory=lambda: [0] * 16)  # by codebook
    taken: list[int] = field(default_factory=lambda: [0] * 16)
    tried_at: list[int] = field(default_factory=lambda: [0] * 16)  # by place in the line
    taken_at: list[int] = field(default_factory=lambda: [0] * 16)
    draft_s: float = 0.0
    hashes: list[str] = field(default_factory=list)
    passes_by_drafter: Counter[str] = field(default_factory=Counter)


class _TimedStream(SpeechStream):
    """A stream that keeps the seconds its drafters take."""

    draft_s = 0.0

    def _make_drafter(self, name: str) -> StreamDrafter:
        drafter = super()._make_drafter(name)
        propose = drafter.propose

        def timed(state: StreamState, count: int) -> Draft:
            started = time.perf_counter()
            draft = propose(state, count)
            self.draft_s += time.perf_counter() - started
            return draft

        drafter.propose = timed  # type: ignore[method-assign]
        return drafter

    def run(self, text: str, tally: _Tally) -> None:
        """Speak ``text``; where in their lines drafts were right goes into ``tally``."""
        self.text(text)
        self.end()
        while not self.finished:
            self.step()
            if (done := self.take_round()) is not None:
                for place in range(min(done.longest, done.accepted + 1)):  # later ones stood behind a wrong one
                    tally.tried_at[place] += 1
                    tally.taken_at[place] += place < done.accepted


def run(synthesizer: Synthesizer, sentences: int, repeats: int, console: Console) -> dict[str, Any]:
    """Measure; the result is ``{"rows": [...], "equal": bool}``, ratios over the row ``none``."""
    texts = held_out_sentences()[:sentences]
    manifest = synthesizer.bundle.manifest
    names = list(drafter_choices(manifest))
    tallies = {name: _Tally() for name in names}
    policy = Policy(manifest)  # of the row ``auto``: what it has learnt goes on from sentence to sentence, as in use
    for name in names:  # warm
        synthesizer.speak(texts[0], drafter=name)
    for _ in range(repeats):
        spent = dict.fromkeys(names, 0.0)
        for index, text in enumerate(texts):
            for name in names:
                voice = manifest.voices[index % len(manifest.voices)].name
                spent[name] += _speak(synthesizer, policy, text, voice, name, index, tallies[name])
        for name in names:
            tallies[name].seconds.append(spent[name])
    rows = [_row(name, tallies[name], tallies["none"]) for name in names]
    _print(rows, console)
    equal = all(tallies[name].hashes == tallies["none"].hashes for name in names)
    return {
        "rows": rows,
        "equal": equal,
        "sentences": len(texts),
        "repeats": repeats,
        "dtype": str(synthesizer.bundle.target.tokens.weight.dtype).removeprefix("torch."),
    }


def _speak(
    synthesizer: Synthesizer, policy: Policy, text: str, voice: str, drafter: str, seed: int, tally: _Tally
) -> float:
    """Speak once; returns the seconds spent in rounds."""
    options = SpeakOptions(voice=voice, drafter=drafter, seed=seed)  # type: ignore[arg-type]
    planned = plan(synthesizer.bundle.manifest, options)
    stream = _TimedStream(synthesizer.bundle, synthesizer.frontend, planned, policy=policy)
    stream.run(text, tally)
    stats = stream.stats()
    tally.draft_s += stream.draft_s
    tally.tokens += stats.tokens
    tally.passes += stats.target_passes
    tally.passes_by_drafter.update(stats.passes_by_drafter)
    tally.drafted += stats.drafted
    tally.accepted += stats.accepted
    tally.work_s += stats.wall_s
    tally.audio_s += stats.audio_s
    tally.hashes.append(stats.token_hash)
    if stats.first_audio_ms is not None:
        tally.first_audio_ms.append(stats.first_audio_ms)
    for book, (tried, taken) in enumerate(zip(stats.tried_by_codebook, stats.accepted_by_codebook, strict=True)):
        tally.tried[book] += tried
        tally.taken[book] += taken
    return stats.rounds_s


def _row(name: str, tally: _Tally, plain: _Tally) -> dict[str, Any]:
    ratios = [base / own for base, own in zip(plain.seconds, tally.seconds, strict=True)]
    return {
        "drafter": name,
        "tokens_per_s": round(tally.tokens / sum(tally.seconds), 1),
        "tau": round(tally.tokens / tally.passes, 3),
        "passes_by_drafter": dict(tally.passes_by_drafter),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_spread": [round(min(ratios), 3), round(max(ratios), 3)],
        "acceptance": round(tally.accepted / tally.drafted, 3) if tally.drafted else None,
        "acceptance_by_codebook": [
            round(taken / tried, 3) for tried, taken in zip(tally.tried, tally.taken, strict=True) if tried
        ],
        "acceptance_by_position": [
            round(taken / tried, 3) for tried, taken in zip(tally.tried_at, tally.taken_at, strict=True) if tried
        ],
        "draft_share": round(tally.draft_s / sum(tally.seconds), 3),
        "rtf": round(tally.work_s / tally.audio_s, 3),
        "first_audio_ms": round(statistics.median(tally.first_audio_ms), 1),
    }


def _print(rows: list[dict[str, Any]], console: Console) -> None:
    table = Table(
        "drafter",
        "tokens/s",
        "tau",
        "ratio",
        "spread",
        "acceptance",
        "by codebook",
        "by place",
        "draft",
        "RTF",
        "first audio ms",
    )
    for row in rows:
        table.add_row(
            row["drafter"],
            f"{row['tokens_per_s']:.0f}",
            f"{row['tau']:.2f}",
            f"{row['ratio']:.2f}",
            "-".join(f"{ratio:.2f}" for ratio in row["ratio_spread"]),
            "" if row["acceptance"] is None else f"{row['acceptance']:.2f}",
            " ".join(f"{share:.2f}" for share in row["acceptance_by_codebook"]),
            " ".join(f"{share:.2f}" for share in row["acceptance_by_position"][:6]),
            f"{row['draft_share']:.0%}",
            f"{row['rtf']:.2f}",
            f"{row['first_audio_ms']:.0f}",
        )
    console.print(table)
