"""The exactness sweep: what every drafter says at every gamma and temperature against plain decoding, and the margin where it differs.

Coupled mode promises the same tokens. In float32 any difference is a failure; in bfloat16 (weights; the arithmetic is the machine's best
for them) one is allowed where plain decoding's two best scores are so close that rounding decides. Real streams, but silent: nothing is
decoded to audio. Knows streams and clocks; prints tables and returns the counts.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from models.bundle import Bundle
from models.evaluation.sentences import held_out_sentences
from tts_spec.engine.plan import SpeechPlan, drafter_choices, plan
from tts_spec.engine.policy import Policy
from tts_spec.engine.stream import SpeechStream
from tts_spec.speculate.round import Round
from tts_spec.speculate.sampling import GREEDY_BELOW
from tts_spec.synthesizer import Synthesizer
from tts_spec.text.frontend import Frontend
from tts_spec.types import Pcm, SpeakOptions, SpeechError

GAMMAS = (1, 2, 4, 7)
TEMPERATURES = (0.0, 0.7, 1.0)
LOOK_SHARE = 0.5  # of the time in ``auto``
ROUNDINGS = 2  # epsilons of the largest score: two passes, each off by two half-epsilons


class SilentStream(SpeechStream):
    """A stream that keeps its decisions and makes no audio."""

    def __init__(self, bundle: Bundle, frontend: Frontend, plan: SpeechPlan, policy: Policy | None = None) -> None:
        super().__init__(bundle, frontend, plan, policy=policy)
        self.decisions: tuple[int, ...] = ()
        self.margin: tuple[float, float] | None = None
        self._watched: int | None = None
        self._epsilon = torch.finfo(self._target.batch.dtype).eps

    def run(self, text: str, watched: int | None = None) -> SilentStream:
        """Speak ``text`` to its end, or, if plain, to decision ``watched``: ``margin`` is then (gap of its two best scores, rounding)."""
        self._watched = watched
        self.text(text)
        self.end()
        while not self.finished and self.margin is None:
            self.step()
        return self

    def _commit(self, done: Round) -> None:
        state = self._state
        if state.position == self._watched:
            logits = self._target.forward(state.inputs[-1:], start=state.position)[0]
            options = self.plan.sampling
            allowed = self._script.allowed(state.script)
            margin = self._sampler.choose_two(logits, allowed, state.inputs, state.position)[2]
            largest = np.abs(logits[np.isfinite(logits)]).max()
            if options.temperature >= GREEDY_BELOW:
                largest /= options.temperature
            self.margin = float(margin), float(ROUNDINGS * self._epsilon * largest)
        self.decisions += done.decisions
        super()._commit(done)

    def _render(self, *, everything: bool) -> Pcm:
        self._undecoded.clear()
        return np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One utterance under one setting."""

    dtype: str
    drafter: str
    gamma: int
    temperature: float
    utterance: int  # held-out sentence; also the seed
    voice: str
    equal: bool
    position: int | None = None  # of the first difference
    gap: float | None = None  # of plain decoding's two best scores there
    rounding: float | None = None

    @property
    def allowed(self) -> bool:
        """Whether the contract permits it."""
        if self.equal:
            return True
        return (
            self.dtype == "bfloat16"
            and self.gap is not None
            and self.rounding is not None
            and self.gap <= self.rounding
        )


def run(synthesizers: dict[str, Synthesizer], n: int, seconds: float | None, console: Console) -> dict[str, Any]:
    """Compare ``n`` utterances (sentence i, voice i modulo the voices) under every setting, for at most ``seconds``.

    Args:
        synthesizers: by dtype, ``float32`` and ``bfloat16`` or one of them; they take turns, utterance by utterance.

    Returns ``{"ok", "utterances", "compared", "equal", "unequal", "complete", "seconds", "cells", "mismatches"}``. ``ok`` is False
    when a comparison is not allowed by the contract, and when there was none.
    """
    texts = held_out_sentences()
    if not 1 <= n <= len(texts):
        raise SpeechError("invalid_value", f"n is {n}; allowed: a whole number from 1 to {len(texts)}", "n")
    if seconds is not None and not seconds > 0:
        raise SpeechError("invalid_value", f"seconds is {seconds}; allowed: a number above 0", "seconds")
    started = time.perf_counter()
    found: list[Comparison] = []
    for comparison in _comparisons(synthesizers, texts[:n]):
        found.append(comparison)
        if seconds is not None and time.perf_counter() - started > seconds:
            break
    unequal = [each for each in found if not each.equal]
    _print(found, console)
    return {
        "ok": bool(found) and all(each.allowed for each in found),
        "utterances": len({each.utterance for each in found}),
        "compared": len(found),
        "equal": len(found) - len(unequal),
        "unequal": len(unequal),
        "complete": len(found) == n * _settings(synthesizers),
        "seconds": round(time.perf_counter() - started, 1),
        "cells": _cells(found),
        "mismatches": [dataclasses.asdict(each) | {"allowed": each.allowed} for each in unequal],
    }


def _settings(synthesizers: dict[str, Synthesizer]) -> int:
    """Comparisons of one utterance."""
    drafters = sum(len(drafter_choices(each.bundle.manifest)) - 1 for each in synthesizers.values())
    return drafters * len(GAMMAS) * len(TEMPERATURES)


def _comparisons(synthesizers: dict[str, Synthesizer], texts: tuple[str, ...]) -> Iterator[Comparison]:
    # ``auto`` as it is, but that it looks much oftener: what changes from round to round is what may go wrong.
    policies = {
        dtype: Policy(synthesizer.bundle.manifest, look_share=LOOK_SHARE) for dtype, synthesizer in synthesizers.items()
    }
    for index, text in enumerate(texts):
        for dtype, synthesizer in synthesizers.items():
            manifest = synthesizer.bundle.manifest
            voice = manifest.voices[index % len(manifest.voices)].name
            for temperature in TEMPERATURES:
                options = SpeakOptions(voice=voice, seed=index, temperature=temperature, drafter="none")
                planned = plan(manifest, options)
                plain = _stream(synthesizer, planned).run(text)
                for drafter in drafter_choices(manifest)[1:]:
                    for gamma in GAMMAS:
                        other = dataclasses.replace(planned, drafter=drafter, gamma=gamma)
                        comparison = Comparison(dtype, drafter, gamma, temperature, index, voice, equal=True)
                        drafted = _stream(synthesizer, other, policies[dtype]).run(text)
                        if drafted.stats().token_hash != plain.stats().token_hash:
                            comparison = _explained(comparison, synthesizer, planned, text, plain, drafted)
                        yield comparison


def _stream(synthesizer: Synthesizer, planned: SpeechPlan, policy: Policy | None = None) -> SilentStream:
    return SilentStream(synthesizer.bundle, synthesizer.frontend, planned, policy)


def _explained(
    comparison: Comparison,
    synthesizer: Synthesizer,
    planned: SpeechPlan,
    text: str,
    plain: SilentStream,
    drafted: SilentStream,
) -> Comparison:
    """With the first difference, and plain decoding's own margin there: until then both have said the same."""
    pairs = enumerate(zip(plain.decisions, drafted.decisions, strict=False))
    shorter = min(len(plain.decisions), len(drafted.decisions))
    position = next((at for at, (one, other) in pairs if one != other), shorter)
    gap, rounding = _stream(synthesizer, planned).run(text, watched=position).margin or (None, None)
    return dataclasses.replace(comparison, equal=False, position=position, gap=gap, rounding=rounding)


def _cells(found: list[Comparison]) -> list[dict[str, Any]]:
    cells: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in found:
        key = {"dtype": each.dtype, "drafter": each.drafter, "gamma": each.gamma, "temperature": each.temperature}
        cell = cells.setdefault(tuple(key.values()), key | {"equal": 0, "unequal": 0})
        cell["equal" if each.equal else "unequal"] += 1
    return list(cells.values())


def _print(found: list[Comparison], console: Console) -> None:
    table = Table("dtype", "drafter", "temperature", *(f"gamma {gamma}" for gamma in GAMMAS), title="equal / compared")
    rows: dict[tuple[str, str, float], list[list[bool]]] = {}
    for each in found:
        row = rows.setdefault((each.dtype, each.drafter, each.temperature), [[] for _ in GAMMAS])
        row[GAMMAS.index(each.gamma)].append(each.equal)
    for (dtype, drafter, temperature), row in rows.items():
        table.add_row(dtype, drafter, f"{temperature:g}", *(f"{sum(cell)}/{len(cell)}" for cell in row))
    console.print(table)
    for each in found:
        if not each.equal:
            gap = "none" if each.gap is None else f"{each.gap:.2e} (rounding {each.rounding:.2e})"
            console.print(
                f"{'allowed' if each.allowed else 'WRONG'}: {each.dtype} {each.drafter} gamma {each.gamma} temperature "
                f"{each.temperature:g} utterance {each.utterance} voice {each.voice}: differs at {each.position}, margin {gap}"
            )
    unequal = sum(not each.equal for each in found)
    console.print(f"equal {len(found) - unequal}, unequal {unequal}", highlight=False)
