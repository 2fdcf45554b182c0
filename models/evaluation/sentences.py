"""The fixed list of held-out sentences: never trained on, always measured on."""

from __future__ import annotations

import importlib.resources
from functools import cache


@cache
def held_out_sentences() -> tuple[str, ...]:
    """The 500 sentences of ``heldout.txt``, in its order (kinds are mixed, so any first N is a fair sample)."""
    text = (importlib.resources.files("models.evaluation") / "heldout.txt").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line)
