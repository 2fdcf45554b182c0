"""What scores of the three systems come to: overall, by voice, speed and kind of sentence, as tables and as JSON.

Knows scores; knows no sound.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from models.evaluation.report import ClipScore, Summary, summarise
from tts_spec.types import SpeechStats

SYSTEMS = ("ours", "teacher", "codec")
OURS, TEACHER, CODEC = SYSTEMS
RATIOS = (0.6, 1.6)  # of a duration to the teacher's: outside, something is missing or hangs

# Of issue 5: figure, required, aim, and whether less is better.
_TARGETS = (
    ("wer_above_teacher", 0.04, 0.015, True),
    ("distill_mos_below_teacher", 0.8, 0.3, True),
    ("p808_below_teacher", 0.4, 0.15, True),
    ("similarity", 0.80, 0.88, False),
    ("lost", 0.03, 0.005, True),
    ("rtf", 0.35, 0.15, True),
    ("tau", 3.0, 3.6, False),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One sentence."""

    index: int
    sentence: str
    voice: str
    speed: float
    kinds: tuple[str, ...]
    scores: dict[str, ClipScore | None]  # by system; ours is None where there was too little sound to be measured
    stats: SpeechStats  # of ours, with the default drafter
    same_tokens: bool  # whether plain decoding said the same

    @property
    def ours(self) -> ClipScore | None:
        return self.scores[OURS]

    @property
    def lost(self) -> bool:
        """Whether the sentence is not to be understood."""
        return self.ours is None or self.ours.lost

    @property
    def duration_ratio(self) -> float | None:
        """Audible seconds of ours over the teacher's; None where one has none."""
        taught = self.scores[TEACHER]
        if self.ours is None or taught is None or not taught.spoken_s:
            return None
        return self.ours.spoken_s / taught.spoken_s

    @property
    def f0_shift(self) -> float | None:
        """Semitones between the median F0 of ours and the teacher's; None where one is not voiced."""
        taught = self.scores[TEACHER]
        if self.ours is None or taught is None or not self.ours.melody.median_hz or not taught.melody.median_hz:
            return None
        return 12 * log2(self.ours.melody.median_hz / taught.melody.median_hz)


def summary(measured: Sequence[Measured]) -> dict[str, Any]:
    """Everything as JSON: the summaries of the systems, figures beside their targets, groups, and each sentence that went wrong."""
    totals = _summaries(measured)
    figures = _figures(measured)
    return {
        "n": len(measured),
        **figures,
        "targets": [
            {
                "figure": name,
                "value": figures[name],
                "required": required,
                "aim": aim,
                "met": figures[name] is not None and (figures[name] <= required if less else figures[name] >= required),
            }
            for name, required, aim, less in _TARGETS
        ],
        **{name: None if total is None else total.as_dict() for name, total in totals.items()},
        "by": {name: {str(key): _figures(group) for key, group in _groups(measured, of)} for name, of in _BY.items()},
        "wrong": [_described(each) for each in measured if _wrong(each)],
    }


def print_report(measured: Sequence[Measured], console: Console) -> None:
    """The same as tables."""
    totals = {name: total.as_dict() for name, total in _summaries(measured).items() if total is not None}
    console.print(_table("", totals, _ROWS))
    figures = _figures(measured)
    console.print(
        "duration ratio {duration_ratio} ({duration_ratio_range}), F0 {f0_shift_st} semitones from the teacher's, tau {tau}, RTF {rtf}, "
        "tokens with and without speculation: {same}".format(
            **figures, same="the same" if figures["same_tokens"] == len(measured) else "NOT the same"
        )
    )
    for name, of in _BY.items():
        console.print(_table(name, {str(key): _figures(group) for key, group in _groups(measured, of)}, _GROUP_ROWS))
    for each in measured:
        if _wrong(each):
            heard = "nothing" if each.ours is None else f"{each.ours.words.rate:.0%} wrong, {each.ours.heard}"
            console.print(
                f"{each.voice} {each.speed:g} x{each.duration_ratio}: {each.sentence} -> {heard}", markup=False
            )


# Row: key, factor, digits.
_ROWS = {
    "WER %": ("wer", 100, 1),
    "CER %": ("cer", 100, 1),
    "lost %": ("lost", 100, 1),
    "DistillMOS": ("distill_mos", 1, 2),
    "DNSMOS ovrl": ("dnsmos_ovrl", 1, 2),
    "p808": ("dnsmos_p808", 1, 2),
    "same voice": ("similarity", 1, 2),
    "F0 spread st": ("spread_semitones", 1, 2),
    "voiced %": ("voiced_share", 100, 0),
    "pauses": ("pauses", 1, 2),
    "pause s": ("pause_s", 1, 2),
    "longest s": ("longest_pause_s", 1, 2),
    "lead s": ("lead_s", 1, 2),
    "tail s": ("tail_s", 1, 2),
    "first dB": ("first_dbfs", 1, 0),
    "last dB": ("last_dbfs", 1, 0),
    "cut": ("cut", 1, 0),
    "jump": ("jump", 1, 3),
    "clipped": ("clipped", 1, 0),
}
_GROUP_ROWS = {
    "n": ("n", 1, 0),
    "WER %": ("wer", 100, 1),
    "teacher": ("wer_teacher", 100, 1),
    "codec": ("wer_codec", 100, 1),
    "lost %": ("lost", 100, 1),
    "DistillMOS": ("distill_mos", 1, 2),
    "below teacher": ("distill_mos_below_teacher", 1, 2),
    "p808 below": ("p808_below_teacher", 1, 2),
    "same voice": ("similarity", 1, 2),
    "F0 shift st": ("f0_shift_st", 1, 2),
    "duration": ("duration_ratio", 1, 2),
    "tau": ("tau", 1, 2),
}
_BY: dict[str, Callable[[Measured], Iterable[Hashable]]] = {
    "voice": lambda each: (each.voice,),
    "speed": lambda each: (each.speed,),
    "kind": lambda each: each.kinds,
}


def _groups(
    measured: Sequence[Measured], of: Callable[[Measured], Iterable[Hashable]]
) -> list[tuple[Hashable, list[Measured]]]:
    groups: dict[Hashable, list[Measured]] = {}
    for each in measured:
        for key in of(each):
            groups.setdefault(key, []).append(each)
    return sorted(groups.items(), key=lambda item: str(item[0]))


def _summaries(measured: Sequence[Measured]) -> dict[str, Summary | None]:
    """By system; all over the same sentences, those of which ours could be measured."""
    heard = [each for each in measured if each.ours is not None]
    found: dict[str, Summary | None] = {}
    for name in SYSTEMS:
        scores = [score for each in heard if (score := each.scores[name]) is not None]
        found[name] = summarise(scores) if scores else None
    return found


def _figures(measured: Sequence[Measured]) -> dict[str, Any]:
    """The figures of some sentences, ours beside the others'; None where nothing could be measured."""
    ours, taught, coded = _summaries(measured).values()  # all or none of them is known
    ratios = [ratio for each in measured if (ratio := each.duration_ratio) is not None]
    shifts = [abs(shift) for each in measured if (shift := each.f0_shift) is not None]
    passes = sum(each.stats.target_passes for each in measured)
    audio = sum(each.stats.audio_s for each in measured)
    return {
        "n": len(measured),
        "failed": sum(each.ours is None for each in measured),
        "lost": _rounded(fmean(each.lost for each in measured)),
        "wer": _rounded(ours.wer) if ours else None,
        "wer_teacher": _rounded(taught.wer) if taught else None,
        "wer_codec": _rounded(coded.wer) if coded else None,
        "wer_above_teacher": _rounded(ours.wer - taught.wer) if ours and taught else None,
        "distill_mos": _rounded(ours.distill_mos) if ours else None,
        "distill_mos_below_teacher": _rounded(taught.distill_mos - ours.distill_mos) if ours and taught else None,
        "p808_below_teacher": _rounded(taught.dnsmos_p808 - ours.dnsmos_p808) if ours and taught else None,
        "similarity": _rounded(ours.similarity) if ours and ours.similarity is not None else None,
        "duration_ratio": _rounded(fmean(ratios)) if ratios else None,
        "duration_ratio_range": [_rounded(min(ratios)), _rounded(max(ratios))] if ratios else None,
        "duration_outside": sum(not RATIOS[0] <= ratio <= RATIOS[1] for ratio in ratios),
        "f0_shift_st": _rounded(fmean(shifts)) if shifts else None,
        "same_tokens": sum(each.same_tokens for each in measured),
        "tau": _rounded(sum(each.stats.tokens for each in measured) / passes) if passes else None,
        "rtf": _rounded(sum(each.stats.wall_s for each in measured) / audio) if audio else None,
    }


def _rounded(value: float) -> float:
    return round(value, 4)


def _wrong(each: Measured) -> bool:
    ratio = each.duration_ratio
    return each.lost or not each.same_tokens or ratio is None or not RATIOS[0] <= ratio <= RATIOS[1]


def _described(each: Measured) -> dict[str, Any]:
    return {
        "index": each.index,
        "voice": each.voice,
        "speed": each.speed,
        "sentence": each.sentence,
        "heard": None if each.ours is None else each.ours.heard,
        "wer": None if each.ours is None else _rounded(each.ours.words.rate),
        "duration_ratio": each.duration_ratio,
        "same_tokens": each.same_tokens,
    }


def _table(title: str, columns: Mapping[str, Mapping[str, Any]], rows: Mapping[str, tuple[str, float, int]]) -> Table:
    table = Table(title, *columns)
    for label, (key, scale, digits) in rows.items():
        table.add_row(label, *(_cell(values[key], scale, digits) for values in columns.values()))
    return table


def _cell(value: float | None, scale: float, digits: int) -> str:
    return "" if value is None else f"{scale * value:.{digits}f}"
