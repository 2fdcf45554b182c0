"""Characters: what the voice's alphabet can say stays, look-alikes are folded into it, the rest leaves with a warning.

Knows Unicode and which letters hibari reads; no words and no grammar.
"""

from __future__ import annotations

import json
import re
import unicodedata
from functools import lru_cache
from importlib.resources import files

from tts_spec.text.tracked import TrackedText
from tts_spec.types import SpeechWarning

_KEEP = frozenset("“”‘’…—–«»€£¥₹₩°¢§¶±×÷™®©•·→½¼¾²³µ′″¿¡₽₺₦₫₴₱₪฿₿")
_WORDS = {
    "≤": "less than or equal to",
    "≥": "greater than or equal to",
    "≠": "not equal to",
    "≈": "about",
    "∞": "infinity",
    "√": "square root of",
    "∑": "sum",
    "∂": "partial",
    "∆": "delta",
    "∈": "in",
    "∩": "intersection",
    "∪": "union",
    "№": "number",
    "‰": "per mille",
    "℗": "published",
    "✓": "check",
    "✔": "check",
    "⇒": "implies",
    "↔": "to and from",
}
_FOLD = {"−": "-", "‒": "-", "―": "—", "‐": "-", "‑": "-", "。": ".", "、": ",", "؟": "?", "،": ",", "⁄": "/", "μ": "µ"}
_FOLD |= {"ʼ": "’", "ʻ": "’", "`": "'", "´": "'", "‚": ",", "„": "“", "‟": "“", "‛": "‘", "◦": "•", "‣": "•", "▪": "•"}

_COMPOSE = re.compile(r"[^\W\d_][\u0300-\u036f]+")
_FOREIGN = re.compile(r"(?:[^\x20-\x7e\s]|`)(?:\s*(?:[^\x20-\x7e\s]|`))*")
_GREEK = re.compile(r"(?<![\u0370-\u03ff])[\u0391-\u03c9](?![\u0370-\u03ff])")
_OHM = re.compile(r"(?<=\d) ?([kM]?)[\u03a9\u2126]")
_OHMS = {"": " ohms", "k": " kilohms", "M": " megohms"}
_SCRIPTS = {"CJK": "Han"}


def speakable(text: TrackedText) -> tuple[TrackedText, list[SpeechWarning]]:
    """``text`` with only characters that can be read, and one ``unspeakable`` warning for each run that cannot."""
    warnings: list[SpeechWarning] = []
    if text.text.isascii() and text.text.isprintable() and "`" not in text.text:
        return text, warnings
    text = text.sub(_COMPOSE, lambda m: unicodedata.normalize("NFC", m.group()))
    text = text.sub(_OHM, lambda m: _OHMS[m.group(1)])
    text = text.sub(_GREEK, lambda m: _FOLD.get(m.group()) or f" {_greek(m.group())} ")
    source = text

    def read(match: re.Match[str]) -> list[tuple[str, int, int]]:
        parts: list[tuple[str, int, int]] = []
        for start, end, kind in _runs(match.group()):
            start, end = start + match.start(), end + match.start()
            if kind is None:
                parts += [(_fate(source.text[i]) or "", i, i + 1) for i in range(start, end)]
            else:
                warnings.append(_unspeakable(source.text[start:end], kind, *source.span(start, end)))
                parts.append((" ", start, end))
        return parts

    return text.sub(_FOREIGN, read), warnings


def _runs(text: str) -> list[tuple[int, int, str | None]]:
    """(start, end, kind) of stretches; kind None = readable, else the script or ``symbol`` of what cannot be read."""
    runs: list[tuple[int, int, str | None]] = []
    for i, char in enumerate(text):
        kind = _kind(char) if _fate(char) is None else None
        last = runs[-1] if runs else None
        if last and last[2] == kind:
            runs[-1] = (last[0], i + 1, kind)
        elif (
            kind and last and len(runs) > 1 and runs[-2][2] == kind and not "".join(map(_kept, text[slice(*last[:2])]))
        ):
            runs[-2:] = [(runs[-2][0], i + 1, kind)]  # only spaces or joiners between two of a kind
        else:
            runs.append((i, i + 1, kind))
    return runs


def _kept(char: str) -> str:
    return (_fate(char) or "").strip()


@lru_cache(maxsize=4096)
def _fate(char: str) -> str | None:
    """What to read for a character: itself, a replacement ("" = silent by nature), or None = cannot be spoken."""
    if char in _FOLD:
        return _FOLD[char]
    if char in _KEEP or " " < char < "\x7f":
        return char
    if char in _WORDS:
        return f" {_WORDS[char]} "
    category = unicodedata.category(char)
    if char.isspace() or category == "Cc":
        return " "
    if category == "Cf" or "\ufe00" <= char <= "\ufe0f" or char == "\u20e3":
        return ""
    folded = unicodedata.normalize("NFKC", char)
    if folded != char and all(" " <= c < "\x7f" or c in _KEEP for c in folded):
        return folded
    if category == "Nd":
        return str(unicodedata.digit(char))
    if category[0] == "L" and unicodedata.name(char, "").startswith("LATIN"):
        base = "".join(c for c in unicodedata.normalize("NFKD", char) if not unicodedata.combining(c))
        return char if char in _letters() else base if all(c in _letters() for c in base) else None
    if category == "Pd":
        return "-"
    return " " if category[0] == "P" else None


@lru_cache(maxsize=1)
def _letters() -> frozenset[str]:
    """The letters hibari's net for unknown words has learnt, ASCII among them."""
    return frozenset(json.loads((files("hibari") / "assets" / "oov.json").read_text(encoding="utf-8"))["in"])


def _greek(char: str) -> str:
    name = unicodedata.name(char).replace("FINAL ", "").split(" LETTER ")[-1].split(" ")[0].lower()
    return "lambda" if name == "lamda" else name


def _kind(char: str) -> str:
    if unicodedata.category(char)[0] in "LMN":
        word = unicodedata.name(char, "unknown").split(" ")[0].split("-")[0]
        return _SCRIPTS.get(word, word.capitalize())
    return "symbol"


def _unspeakable(text: str, kind: str, start: int, end: int) -> SpeechWarning:
    if kind == "symbol":
        names = dict.fromkeys(_name(c) for c in text if _fate(c) is None)
        what = ", ".join(list(names)[:5]) + (", ..." if len(names) > 5 else "")
    else:
        what = f"{kind} script"
    shown = text if len(text) <= 40 else text[:40] + "..."
    return SpeechWarning("unspeakable", f"{shown!r} ({what}) cannot be spoken and is left out", start, end)


def _name(char: str) -> str:
    return unicodedata.name(char, f"U+{ord(char):04X}").lower()
