"""hibari's own normalisation (times, dates, units, abbreviations), done so that source offsets survive.

hibari rewrites a plain string; this runs the rules of its ``normalize`` in the same order over a TrackedText. The text
that comes out is the same, which a test checks. Bound to the pinned version of hibari-tts: the rules are not its public
API.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module

from tts_spec.text.tracked import TrackedText

h = import_module("hibari.g2p.normalize")  # a plain import finds the function of that name

_Rule = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]


def normalize(text: TrackedText) -> TrackedText:
    """The words hibari would say for ``text``; its text equals ``hibari.g2p.normalize.normalize(text.text)``."""
    text = text.sub(h.RE_WS, " ").strip()
    for pattern, replace in _rules():
        text = text.sub(pattern, replace)
    for symbol, pattern, word in _symbol_rules():
        if symbol in text.text:
            text = text.sub(pattern, word)
    return text.sub(h.RE_WS, " ").sub(h.RE_SPACE_PUNCT, r"\1").strip()


@lru_cache(maxsize=1)
def _rules() -> tuple[_Rule, ...]:
    def cents(m: re.Match[str]) -> str:
        return f"{m.group(1)} {h._plural(m.group(1), h.CURRENCY_WORDS['¢'])}"

    def abbreviation(m: re.Match[str]) -> str:
        at_end = m.end() == len(m.string) and m.group(1).endswith(".")
        return str(h.ABBREV[m.group(1)]) + ("." if at_end else "")

    return (
        (re.compile("’"), "'"),
        (re.compile("‒"), "-"),
        (re.compile("―"), "—"),
        (h.RE_TIME, h._time),
        (h.RE_DATE_ISO, h._date_iso),
        (h.RE_DATE_US, h._date_us),
        (h.RE_BIG_MONEY, h._big_money),
        (h.RE_CENTS, cents),
        (h.RE_CURRENCY, h._currency),
        (h.RE_DEG, h._deg),
        (h.RE_UNIT, h._unit),
        (h.RE_MONTH_DAY, h._month_day),
        (h.RE_DAY_MONTH, h._day_month),
        (h.RE_TITLE, lambda m: h.TITLES[m.group(1)] + " "),
        (h.RE_ABBREV, abbreviation),
        (h.RE_NO, lambda m: "Number " if m.group(1) == "No" else "Numbers "),
        (h.RE_HASH, "number "),
        (h.RE_ROMAN_C, lambda m: f"{m.group(1)} {h._roman(m.group(2))}"),
        (h.RE_ROMAN_O, lambda m: f"{m.group(1)} the {h.N.ordinal(h._roman(m.group(2)))}"),
        (h.RE_PHONE, lambda m: " ".join(m.group(0).replace("-", ", "))),
        (h.RE_FRACTION, h._fraction),
        (h.RE_RANGE, r"\1 to \2"),
        (h.RE_PLUS, "plus "),
    )


@lru_cache(maxsize=1)
def _symbol_rules() -> tuple[tuple[str, re.Pattern[str], str], ...]:
    rules = []
    for symbol, word in h.SYMBOLS.items():
        escaped = re.escape(symbol)
        pattern = rf"(?<=\S) ?{escaped} ?(?=\S)" if symbol in "=<>~" else escaped
        rules.append((symbol, re.compile(pattern), f" {word} " if word else " "))
    return tuple(rules)
