"""Abbreviations and codes that hibari does not know, or takes for others: "She said no." is no number, "Elm Dr." no doctor.

Each rule is a pattern and what to write for it; hibari then reads the words. A stop that is parted from its word is a sentence's end and
no part of an abbreviation: hibari closes the gap again.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tts_spec.text.tracked import Replacement, TrackedText

LETTER_A = "[A](/ˈA/)"  # the letter, not the article: hibari's syntax for given phonemes

_NUM = r"\d+(?:,\d{3})*(?:\.\d+)?"
_ENDS = r"(?=\s*$|\s+[A-Z\"“])"  # of a sentence
_ROADS = {"Dr": "Drive", "Ct": "Court", "Pl": "Place", "Sq": "Square", "Cir": "Circle", "Ter": "Terrace"}
_WORDS = {
    "dept": "department",
    "govt": "government",
    "tel": "telephone",
    "incl": "including",
    "esp": "especially",
    "misc": "miscellaneous",
    "avg": "average",
    "approx": "approximately",
    "max": "maximum",
    "temp": "temperature",
    "qty": "quantity",
    "ext": "extension",
    "ave": "avenue",
}
_SQUARE = {
    "ft": "feet",
    "mi": "miles",
    "in": "inches",
    "yd": "yards",
    "km": "kilometers",
    "m": "meters",
    "cm": "centimeters",
}
_HOTLINES = r"(?:911|999|112|000|211|311|411|511|611|711|811|988)"

_Rule = tuple[str, str | Callable[[re.Match[str]], Replacement]]


def _digits(m: re.Match[str]) -> str:
    """Group 1 as it is, the digits of group 2 one by one, a rest at each hyphen."""
    return m.group(1) + ", ".join(" ".join(part) for part in m.group(2).split("-"))


_RULE_TEXT: tuple[_Rule, ...] = (
    # words that hibari takes for abbreviations
    (r"(?<![\w.])([Nn]os?|fig|ch)\.(?!\s?\d)", r"\1 ."),
    (r"(?<![\w.])est\.(?!\s?\d)", "estimated"),
    (r"\b(the Sun)\." + _ENDS, r"\1 ."),
    # abbreviations
    (
        rf"\b((?:\d+|[Oo]n|[Aa]t|[Nn]ear|[Aa]long|[Dd]own|[Uu]p|[Tt]o)(?: [A-Z][a-z]+)+) ({'|'.join(_ROADS)})\b(?! [A-Z][a-z])(\.?)",
        lambda m: f"{m.group(1)} {_ROADS[m.group(2)]}{m.group(3)}",
    ),
    (r"\bp\.\s?(?=\d)", "page "),
    (r"(?<![\w.])(?<!\d )min\.\s?(?=\d)", "minimum "),
    (r"\b[Ee]xt\.?\s?(?=\d)", "extension "),
    (
        rf"(?<![\w.])({'|'.join(_WORDS)})\.(?!\w)({_ENDS})?",
        lambda m: _WORDS[m.group(1)] + ("" if m.group(2) is None else "."),
    ),
    # units with stops
    (r"(?<=\d)\s?sq\.? ?(ft|mi|in|yd|km|cm|m)\b\.?", lambda m: f" square {_SQUARE[m.group(1)]}"),
    (
        r"/\s?sq\.? ?(ft|mi|in|yd|km|cm|m)\b\.?",
        lambda m: f" per square {_SQUARE[m.group(1)].replace('feet', 'foot').rstrip('s')}",
    ),
    (rf"(?<=\d)\s?in\.{_ENDS}", " inches."),
    (r"(?<=\d)\s?in\.(?=\s+[a-z(])", " inches"),
    (r"(?<=\d)(\s?(?:min|sec|hrs?|ft|oz|lbs?|mi|yds?|tsp|tbsp|km|cm|mm|kg))\.(?=\s+[a-z\d(])", r"\1"),
    (r"(?<![\w.])(\d+)\s?h(?:rs?)?\s?(\d{1,2})\s?m(?:in)?\b(?!/)", r"\1 hours \2 minutes"),
    (r"(?<=\d)\s?([ap])m\b(?!\.)", lambda m: f" {m.group(1).upper()}M"),
    # codes, digit by digit
    (rf"\b((?:[Cc]all|[Dd]ial|[Tt]ext|[Pp]hone)(?:ed|ing|s)? )({_HOTLINES})\b(?![-.,]\d)", _digits),
    (
        r"\b((?:PIN|OTP|[Pp]asscode|[Cc]ode|[Zz]ip(?: code)?|ZIP(?: code)?|[Pp]ostcode)(?: is|:)? )(\d{4,})\b(?![-.,]\d)",
        _digits,
    ),
    (
        r"\b((?:account|confirmation|tracking|serial|reference|card|ticket|case) number (?:is )?)(\d{4,})\b(?![-.,]\d)",
        _digits,
    ),
    (r"\b([A-Z]{2} )(\d{5}(?:-\d{4})?)\b(?![-.,]?\d)", _digits),
    (r"\b(ISBN:? )(\d[\d-]{8,16}\d)\b", _digits),
    (
        r"\b(Apt\.?|Apartment|[Rr]oom|Unit|Suite|[Gg]ate|[Ff]lat|[Ss]eat|Row|[Pp]latform|[Ee]xit|[Ll]evel|[Cc]lass|[Bb]us|[Ll]ine) "
        r"(\d+)([A-Z])\b",
        lambda m: f"{m.group(1)} {m.group(2)} {LETTER_A if m.group(3) == 'A' else m.group(3)}",
    ),
    (r"(?<![\w&])#(?=[A-Z\d]*\d)", "number "),
    # letters
    (r"(?<=[a-z] )A(?=[.,;:!?)]|\s*$| (?:or|to) [A-Z]\b)", LETTER_A),
    (r"(?<!\w)A(?=(?: [A-Z])+(?:[.,;:!?]|\s*$))", LETTER_A),
    (r"(?<![-\w])A-OK\b", f"{LETTER_A} OK"),
)

_QUICK = re.compile(r"[.\d#]|A(?!\w)|-OK|sq ")
_RULES = tuple((re.compile(pattern), replace) for pattern, replace in _RULE_TEXT)


def read_abbreviations(text: TrackedText) -> TrackedText:
    """Abbreviations and codes as words, before amounts are read."""
    if not _QUICK.search(text.text):
        return text
    for pattern, replace in _RULES:
        text = text.sub(pattern, replace)
    return text
