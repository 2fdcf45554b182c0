"""Amounts and symbols hibari reads wrongly or drops: money, ranges, units, times of day, signs.

Each rule is a pattern and what to write for it; hibari then reads numbers, currencies and units.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tts_spec.text.addresses import POINT
from tts_spec.text.normalize import h
from tts_spec.text.tracked import Replacement, TrackedText

_NUM = r"\d+(?:,\d{3})*(?:\.\d+)?"
_TIME_OF_DAY = r"\d{1,2}(?::\d{2})?(?:\s?[AaPp]\.?[Mm]\.?)?"
_BIG = {"k": "thousand", "m": "million", "b": "billion", "t": "trillion"}
_PER = {
    "s": "second",
    "sec": "second",
    "min": "minute",
    "h": "hour",
    "hr": "hour",
    "wk": "week",
    "mo": "month",
    "yr": "year",
    "kg": "kilogram",
    "lb": "pound",
    "l": "liter",
    "L": "liter",
    "m²": "square meter",
    "sqm": "square meter",
}
_PER |= {
    word: word
    for word in (
        *("second", "minute", "hour", "day", "night", "week", "month", "quarter", "year"),
        *("person", "user", "seat", "unit", "mile", "gallon", "page"),
    )
}
_COINS = {
    "₽": "rubles",
    "₺": "lira",
    "₦": "naira",
    "₫": "dong",
    "₴": "hryvnia",
    "₱": "pesos",
    "₪": "shekels",
    "฿": "baht",
    "₿": "bitcoins",
}
_CODES = {"USD": "$", "EUR": "€", "GBP": "£"}
_LONE_MONEY = {"$": "dollar", "€": "euro", "£": "pound"} | {coin: word.rstrip("s") for coin, word in _COINS.items()}
# singular, plural; with a space before the unit only where no word is meant
_UNITS = {
    "m/s": ("meter per second", "meters per second"),
    "km²": ("square kilometer", "square kilometers"),
    "m²": ("square meter", "square meters"),
    "cm²": ("square centimeter", "square centimeters"),
    "m³": ("cubic meter", "cubic meters"),
    "cm³": ("cubic centimeter", "cubic centimeters"),
    "MB/s": ("megabyte per second", "megabytes per second"),
    "GB/s": ("gigabyte per second", "gigabytes per second"),
    "px": ("pixel", "pixels"),
    "dB": ("decibel", "decibels"),
    "kcal": ("kilocalorie", "kilocalories"),
    "kPa": ("kilopascal", "kilopascals"),
    "µs": ("microsecond", "microseconds"),
    "m/s²": ("meter per second squared", "meters per second squared"),
    "mL": ("milliliter", "milliliters"),
    "cl": ("centiliter", "centiliters"),
    "dl": ("deciliter", "deciliters"),
    "L": ("liter", "liters"),
    "tsp": ("teaspoon", "teaspoons"),
    "tbsp": ("tablespoon", "tablespoons"),
    "V": ("volt", "volts"),
    "kV": ("kilovolt", "kilovolts"),
    "W": ("watt", "watts"),
    "mA": ("milliamp", "milliamps"),
    "rpm": ("revolution per minute", "revolutions per minute"),
    "bpm": ("beat per minute", "beats per minute"),
    "psi": ("pound per square inch", "pounds per square inch"),
}
_GLUED_UNITS = {
    "m": ("meter", "meters"),
    "g": ("gram", "grams"),
    "l": ("liter", "liters"),
    "L": ("liter", "liters"),
    "h": ("hour", "hours"),
    "s": ("second", "seconds"),
    "V": ("volt", "volts"),
    "W": ("watt", "watts"),
}
# "in his 30s" are years, "a 30s limit" is a time
_NOT_DECADE = "".join(
    rf"(?<!{before})"
    for before in (r"\bthe ", "his ", "her ", r"\bmy ", "heir ", "our ", r"\bin ", "rly ", "mid-", "late ")
)


def _alternatives(words: dict[str, str] | dict[str, tuple[str, str]]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


_ALL_UNITS = {name: (one, many) for name, (one, many) in h.UNITS.items()} | _UNITS
# After "a" and before what is measured a unit has no plural: "a 5 kg bag".
_NOT_MEASURED = r"(?:of|and|or|to|in|at|per|is|was|for|from|with|away|ago|later|than|by|on|as|a|the)"


def _money_range(m: re.Match[str]) -> str:
    sign, low, high, big = m.groups()
    return f"{low} to {sign}{high}{big or ''}"


def _big_money(m: re.Match[str]) -> str:
    sign, number, big = m.groups()
    return f"{sign}{number} {_BIG[big[0].lower()]}"


def _unit(units: dict[str, tuple[str, str]]) -> Callable[[re.Match[str]], str]:
    return lambda m: f"{m.group(1)} {units[m.group(2)][m.group(1) not in ('1', '-1')]}"


def _scientific(m: re.Match[str]) -> str:
    sign = "minus " if m.group(2).startswith("-") else ""
    return f"{m.group(1)} times 10 to the {sign}{m.group(2).lstrip('+-')}"


def _mixed(m: re.Match[str]) -> str:
    fraction = {"1/2": "a half", "½": "a half", "1/4": "a quarter", "¼": "a quarter", "1/3": "a third"}
    return f"{m.group(1)} and {fraction.get(m.group(2), m.group(2))}"


_Rule = tuple[str, str | Callable[[re.Match[str]], Replacement]]

_RULE_TEXT: tuple[_Rule, ...] = (
    # no word exists for it: digit by digit
    (r"\d[\d,]{15,}", lambda m: " ".join(m.group().replace(",", ""))),
    # typography
    (r"(?<![\d,.])(\d{1,2}(?:,\d{1,2})+)(?![\d,]|\.\d)", lambda m: m.group().replace(",", ", ")),
    (r"(?<=\S)--(?=[^\s-])(?<!---)|(?<=\S) -- (?=\S)", " — "),
    (r"‘", "'"),
    (r"(?<!\w)['’]n['’](?!\w)", "and"),
    (r"(?<=\w)\((s|es)\)", r"\1"),
    (r"\b401\(?k\)?(?!\w)", "four oh one k"),
    (r"(?<=\d)\(([a-z])\)", r" \1"),
    # money
    (r"\bUS\$", "$"),
    (rf"([$€£]{_NUM})\s?(?:USD|EUR|GBP)\b", r"\1"),
    (rf"\b(USD|EUR|GBP)\s?({_NUM})(?![\w.]*\d)", lambda m: _CODES[m.group(1)] + m.group(2)),
    (rf"(?<![\w.])({_NUM})\s?(USD|EUR|GBP)\b", lambda m: _CODES[m.group(2)] + m.group(1)),
    (rf"(?<![\w.,$£€])({_NUM})\s?([$€£])(?![\w$€£])", r"\2\1"),
    (r"(?<!\w)[-−]\s?([$£€])(?=\d)", r"minus \1"),
    (rf"([$£€])({_NUM})\s?[-–]\s?[$£€]?({_NUM})((?:\s?(?:[mbt]n|[kmbMB]|million|billion|trillion))?)\b", _money_range),
    (rf"([$£€])({_NUM})\s?([mbtMBT]n|[tT]|[kKmMbB])\b(?!-)", _big_money),
    (r"([$£€]\d+(?:,\d{3})*\.\d)(?![\d.]|\s?(?:hundred|thousand|[mbtr]+illion)|\d)", r"\g<1>0"),
    (rf"([{''.join(_COINS)}])\s?({_NUM})", lambda m: f"{m.group(2)} {_COINS[m.group(1)]}"),
    (rf"({_NUM})\s?([{''.join(_COINS)}])", lambda m: f"{m.group(1)} {_COINS[m.group(2)]}"),
    (rf"[$€£{''.join(_COINS)}](?!\s?\d)", lambda m: f" {_LONE_MONEY[m.group()]} "),
    (rf"(?<=\d)( ?[a-zA-Z]*)/({_alternatives(_PER)})\b(?!/)(?<!m/s)(?<!km/h)", lambda m: _per(m)),
    # times of day and idioms of digits
    (rf"(?<![\w:.-])({_TIME_OF_DAY})\s?[-–]\s?(?=\d{{1,2}}(?::\d{{2}}|\s?[AaPp]\.?[Mm]\b))", r"\1 to "),
    (r"\b24/7\b", "24 7"),
    (r"\b9/11\b", "nine eleven"),
    (r"(?<![\w:.,])(\d+):(\d)(?![\d:])", r"\1 to \2"),
    (r"(?<![\w.,:/'’-])0\d+(?![\w:]|[.,/-]\d)", lambda m: " ".join(m.group())),
    (r"(?<![\w/.])(\d+) ?([½¼¾]|[1-9]/[2-9])(?![\w/])", _mixed),
    # arithmetic
    (r"(?<![\w.])(\d+(?:\.\d+)?)[eE]([-+]?\d+)\b", _scientific),
    (r"(?<=\d)\s?[*]\s?(?=\d)", " times "),
    (r"(?<=\d)\s?x\s?(?=\d)", " by "),
    (r"(?<=\d)x\b", " times"),
    (r"(?<=\w)\^2\b", " squared"),
    (r"(?<=\w)\^3\b", " cubed"),
    (r"(?<=\d) ?[-−–] ?(?=\d[\d.,]* ?=)", " minus "),
    # hibari reads ranges, but not at the end of a sentence
    (r"(?<![\w.,$£€:/-])(\d{1,4}) ?[-–] ?(\d{1,4})(?=[.!?][\"”')]*(?:\s|$))", r"\1 to \2"),
    (r"<=", " less than or equal to "),
    (r">=", " greater than or equal to "),
    (r"!=", " not equal to "),
    (r"[-=]>", " → "),
    (r"~(?=\d)", "about "),
    (rf"(?<![\w.,$£€:/-])({_NUM})(%?)\s?[-–]\s?(?={_NUM}%)", r"\1\2 to "),
    (r"(?<![\w.,$£€:/-])(\d+\.\d+|\d+(?=\s?[-–]\s?\d+\.))\s?[-–]\s?(?=\d+(?:\.\d+)?(?![\w.-]))", r"\1 to "),
    # units
    (r"(?<=\d)['′](\d{1,2})[\"″]", r" foot \1"),
    (r"(?<=\bft )(\d{1,2}) ?in\b", r"\1 inches"),
    (
        rf"\b([Aa]n? )({_NUM})[\s-]?({_alternatives(_ALL_UNITS)})(?= (?!{_NOT_MEASURED}\b)[a-z])",
        lambda m: f"{m.group(1)}{m.group(2)} {_ALL_UNITS[m.group(3)][0]}",
    ),
    (rf"(?<![\w.])(-?{_NUM})\s?({_alternatives(_UNITS)})(?![\w/²³])", _unit(_UNITS)),
    (r"(?<![\w.])(\d+)h(\d{2})(?!\w)", r"\1 hours \2"),
    (rf"{_NOT_DECADE}(?<![\w.'’])([1-9]0)s(?!\w)", r"\1 seconds"),
    (rf"(?<![\w.])(?![1-9]0s)(?!\d{{4}}s)(-?{_NUM})({_alternatives(_GLUED_UNITS)})(?![\w'’/])", _unit(_GLUED_UNITS)),
    (rf"(?<![\w.])({_NUM})M\b", r"\1 million"),
    (rf"(?<![\w.])({_NUM})(?:bn|B)\b", r"\1 billion"),
    (r"\bkm/h\b", "kilometers per hour"),
    # a decimal keeps its last zeros
    (r"(?<![\w.,$£€])(\d+(?:,\d{3})*)\.(\d*0)(?![\d.]*\d)", lambda m: f"{m.group(1)} {POINT} {' '.join(m.group(2))}"),
    # names and lone signs
    (r"\bCO(?=2\b)", "C.O. "),
    (r"\bH2O\b", "H 2 O"),
    (r"\bIPv(?=[46]\b)", "I.P. v "),
    (r"\b([A-G])#(?!\w)", r"\1 sharp"),
    # brackets as hibari reads them; "[word](/phonemes/)" is a given reading
    (r"\[(?![^\]]*\]\(/)|\{", "("),
    (r"\](?!\(/)|\}", ")"),
    (r"(?<=\w)\((?=[\w'\"])", " ("),
    (r"\\", " backslash "),
    # hibari reads a word with a quotation mark before it letter by letter ("that's" with the sound of "think")
    (r"(?<=\w)[\"“”«»](?=\w)", " "),
    (r"[\"“”«»]", ""),
    (r"(?<=\w)_(?=\w)", " underscore "),
)

# What at least one rule needs: most clauses have none of it and skip them all.
_QUICK = re.compile(r"[\d!\"“”«»{}\[\]R$£€₽₺₦₫₴₱₪฿₿#^\\_()<>=/‘'’~-]")


def _per(m: re.Match[str]) -> str:
    return f"{m.group(1)} per {_PER[m.group(2)]}"


_RULES = tuple((re.compile(pattern), replace) for pattern, replace in _RULE_TEXT)


def read_quantities(text: TrackedText) -> TrackedText:
    """Amounts and signs in a form that hibari reads as a careful speaker would."""
    if not _QUICK.search(text.text):
        return text
    for pattern, replace in _RULES:
        text = text.sub(pattern, replace)
    return text
