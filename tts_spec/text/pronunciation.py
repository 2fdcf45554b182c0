"""Pronunciations the caller writes into the text: ``<sub alias="...">`` and ``<phoneme ph="...">``.

Turns IPA and CMU Arpabet into the alphabet of ``symbols.py``, as far as the voices know it. Knows no audio.
"""

from __future__ import annotations

import html
import re
import unicodedata

_VALUE = r"""\s*=\s*(?:"([^"<>]*)"|'([^'<>]*)')"""
SUB = re.compile(rf"<sub\s+alias{_VALUE}\s*>(?P<inner>[^<>]*)</sub\s*>", re.IGNORECASE)
# A mark right behind the element belongs to it: the stretch after it would begin, or consist, of nothing else.
PHONEME = re.compile(
    r"<phoneme\b(?P<attributes>[^<>]*)>(?P<inner>[^<>]*)</phoneme\s*>(?P<mark>[.,;:!?…]?)", re.IGNORECASE
)
_PH = re.compile(rf"\bph{_VALUE}", re.IGNORECASE)
_ALPHABET = re.compile(rf"\balphabet{_VALUE}", re.IGNORECASE)

_VOWELS = frozenset("AIOQWYaeiouæɑɐɒɔəɛɜɪʊʌᵊᵻ")
_STRESS = frozenset("ˈˌ")
# English sounds: what the voices have learnt to say.
_KNOWN = frozenset("bdfhjklmnpstvwzðŋɡɹɾʃʒʔʤʧθTː ") | _VOWELS | _STRESS
# IPA as dictionaries write it -> the alphabet, which has one letter for each diphthong and affricate.
_FROM_IPA = {
    "d͡ʒ": "ʤ", "dʒ": "ʤ", "t͡ʃ": "ʧ", "tʃ": "ʧ", "eɪ": "A", "aɪ": "I", "aʊ": "W", "ɔɪ": "Y", "oʊ": "O", "əʊ": "Q", "ɚ": "əɹ", "ɝ": "ɜɹ",
    "r": "ɹ", "g": "ɡ", "ɫ": "l", "'": "ˈ", ".": "", "‿": "", "/": "", "[": "", "]": "",
}  # fmt: skip
_IPA = re.compile("|".join(map(re.escape, sorted(_FROM_IPA, key=len, reverse=True))))
_FROM_ARPABET = {
    "AA": "ɑ", "AE": "æ", "AH": "ʌ", "AO": "ɔ", "AW": "W", "AY": "I", "B": "b", "CH": "ʧ", "D": "d", "DH": "ð", "EH": "ɛ", "ER": "ɜɹ",
    "EY": "A", "F": "f", "G": "ɡ", "HH": "h", "IH": "ɪ", "IY": "i", "JH": "ʤ", "K": "k", "L": "l", "M": "m", "N": "n", "NG": "ŋ", "OW": "O",
    "OY": "Y", "P": "p", "R": "ɹ", "S": "s", "SH": "ʃ", "T": "t", "TH": "θ", "UH": "ʊ", "UW": "u", "V": "v", "W": "w", "Y": "j", "Z": "z",
    "ZH": "ʒ",
}  # fmt: skip
_UNSTRESSED = {"AH": "ə", "ER": "əɹ"}


def alias_of(match: re.Match[str]) -> list[tuple[str, int, int]]:
    """What is read for a match of ``SUB``, standing for what the element encloses: a part for ``TrackedText.sub``."""
    alias = match.group(1) if match.group(1) is not None else match.group(2)
    return [(html.unescape(alias), *match.span("inner"))]


def phonemes_of(match: re.Match[str]) -> str | None:
    """The symbols for a match of ``PHONEME``; None when it names none, or one the voices do not have, or encloses nothing."""
    attributes = match.group("attributes")
    written, alphabet = _PH.search(attributes), _ALPHABET.search(attributes)
    if written is None or not match.group("inner").strip():
        return None
    text = html.unescape(written.group(1) or written.group(2) or "")
    name = (alphabet.group(1) or alphabet.group(2) or "ipa").lower() if alphabet else "ipa"
    symbols = from_arpabet(text) if "arpabet" in name else from_ipa(text)
    return english(symbols)


def english(symbols: str) -> str | None:
    """The symbols again if the voices have all of them and there is a vowel, else None."""
    return symbols if any(symbol in _VOWELS for symbol in symbols) and set(symbols) <= _KNOWN else None


def from_ipa(text: str) -> str:
    """IPA in the alphabet; what is not English stays as it is. A stress mark goes from the syllable to its vowel, where it stands here."""
    text = _IPA.sub(lambda match: _FROM_IPA[match.group()], unicodedata.normalize("NFC", text).strip())
    symbols, stress = "", ""
    for symbol in text:
        if symbol in _STRESS:
            stress = symbol
        elif symbol in _VOWELS and stress:
            symbols += stress + symbol
            stress = ""
        else:
            symbols += symbol
    return symbols


def from_arpabet(text: str) -> str:
    """CMU Arpabet, e.g. ``T AH0 M EY1 T OW2``; what is none stays as it is."""
    symbols = ""
    for phone in text.upper().split():
        name, stress = (phone[:-1], phone[-1]) if phone[-1].isdigit() else (phone, "")
        mark = {"1": "ˈ", "2": "ˌ"}.get(stress, "")
        sound = _UNSTRESSED.get(name) if stress == "0" else None
        symbols += mark + (sound or _FROM_ARPABET.get(name, phone))
    return symbols
