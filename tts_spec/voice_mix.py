"""A voice that is named: one of the bundle, or several mixed by weight, as in ``heart(2)+michael(1)``.

Knows names and weights; knows nothing of what a voice is made of.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from tts_spec.types import SpeechError

MAX_WEIGHT = 100.0

_PART = re.compile(r"([^()]+)(?:\(([^()]*)\))?")


def mixed(text: str, find: Callable[[str], str]) -> dict[str, float]:
    """Weights by voice of ``text``: a name alone weighs 1; a voice named twice weighs what both say. Weights are as written, in order.

    ``find`` gives the bundle's name of a voice, or raises ``SpeechError``. Raises ``SpeechError`` ``invalid_value`` for what is no mix.
    """
    weights: dict[str, float] = {}
    for part in text.split("+"):
        match = _PART.fullmatch(part.strip())
        if match is None or not match[1].strip():
            raise SpeechError(
                "invalid_value",
                f"voice is {text[:80]!r}; allowed: a name, or names with weights, name(2)+name(1)",
                "voice",
            )
        name = find(match[1].strip())
        weights[name] = weights.get(name, 0.0) + _weight(match[2], text)
    return weights


def mix_name(weights: dict[str, float]) -> str:
    """The name of a mix: what ``mixed`` reads."""
    if len(weights) == 1:
        return next(iter(weights))
    return "+".join(f"{name}({weight:.15g})" for name, weight in weights.items())


def voice_weights(text: str, names: Collection[str]) -> dict[str, float]:
    """Share of each voice in ``text``, which names some of ``names``: sums to 1.

    Raises ``SpeechError`` ``unknown_voice``, or ``invalid_value`` for what is no mix.
    """

    def find(name: str) -> str:
        if name not in names:
            raise SpeechError(
                "unknown_voice", f"voice is {name[:80]!r}; allowed: {', '.join(names)}, or a mix", "voice"
            )
        return name

    if text in names:
        return {text: 1.0}
    weights = mixed(text, find)
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def _weight(written: str | None, text: str) -> float:
    if written is None:
        return 1.0
    try:
        weight = float(written)
    except ValueError:
        weight = 0.0
    if not 0 < weight <= MAX_WEIGHT:
        raise SpeechError(
            "invalid_value",
            f"voice is {text[:80]!r}, with the weight {written[:80]!r}; allowed: a number above 0, up to {MAX_WEIGHT:g}",
            "voice",
        )
    return weight
