"""The fixed list of held-out sentences: never trained on, always measured on; and what kind each of them is."""

from __future__ import annotations

import importlib.resources
import re
from functools import cache

SHORT, LONG = 4, 18  # words

_CAPITAL = re.compile(r"(?<=\w[ ,]) ?(?!I\b)[A-Z][a-z]")  # a capital that does not begin a sentence


@cache
def held_out_sentences() -> tuple[str, ...]:
    """The 500 sentences of ``heldout.txt``, in its order (kinds are mixed, so any first N is a fair sample)."""
    text = (importlib.resources.files("models.evaluation") / "heldout.txt").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line)


def kinds(sentence: str) -> tuple[str, ...]:
    """What is special about a sentence: any of names, numbers, question, exclamation, short, long; else plain.

    Names are words with a capital inside a sentence, so a name that begins one is missed.
    """
    count = len(sentence.split())
    special = {
        "names": _CAPITAL.search(sentence) is not None,
        "numbers": any(map(str.isdigit, sentence)),
        "question": "?" in sentence,
        "exclamation": "!" in sentence,
        "short": count <= SHORT,
        "long": count >= LONG,
    }
    return tuple(kind for kind, holds in special.items() if holds) or ("plain",)
