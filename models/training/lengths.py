"""How long phonemes last in a packed corpus, by class and place: what ``tts_spec/engine/lengths.py`` holds.

    python -m models.training.lengths PACKED

Lengths are in frames at speed 1. Fewest is their 0.5 % quantile, rounded down; most is 1.5 times the 99.9 % quantile, rounded up.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import typer

from models.training.dataset import Row, read_rows
from tts_spec.engine.lengths import CLASSES, SONORANT, Place, class_of, place_before

LOW, HIGH, SPARE = 0.005, 0.999, 1.5
SOUNDS = ("vowel", "stop", "fricative", SONORANT, "length")  # the others last the same in every place


def lengths(rows: Iterable[Row]) -> dict[tuple[str, Place], tuple[int, int]]:
    """(fewest, most) frames by class and place; nothing of what does not occur."""
    found: dict[tuple[str, Place], list[float]] = defaultdict(list)
    for row in rows:
        following = [*row.phonemes[1:], None]
        for symbol, after, frames in zip(row.phonemes, following, row.durations[1:-1], strict=True):
            name, place = class_of(symbol), place_before(after)
            for each in Place if name not in SOUNDS else (place,):
                found[name, each].append(frames * row.speed)
    return {
        key: (max(1, math.floor(np.quantile(values, LOW))), math.ceil(SPARE * np.quantile(values, HIGH)))
        for key, values in found.items()
    }


def main(packed: Path) -> None:
    """Print the table of the corpus in folder ``packed``."""
    rows = read_rows(packed)
    table = lengths(rows)
    print(f"{len(rows)} utterances; fewest and most frames inside a word, before a space, before a mark or the end")
    for name in (*CLASSES, SONORANT):
        print(f"{name:10}", *(table.get((name, place), "-") for place in Place))


if __name__ == "__main__":
    typer.run(main)
