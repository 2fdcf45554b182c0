"""Addresses and codes: URLs, e-mail, IP numbers, file names and paths, phone numbers, read the way people say them.

Each rule is a pattern and what to write for it; hibari then reads the words.
"""

from __future__ import annotations

import re

from tts_spec.text.tracked import Part, TrackedText

_TLD = (
    r"(?:com|org|net|edu|gov|mil|info|biz|io|ai|dev|app|co|me|tv|ly|gg|xyz|eu|uk|us|ca|au|nz|ie|de|at|ch|fr|es|it|nl|be|se"
    r"|no|dk|fi|pl|cz|jp|kr|cn|in|br|mx|za)"
)
_URL = re.compile(
    rf"(?:(?:https?|ftp|wss?)://|mailto:|www\.)[^\s<>\"“”]+"
    r"|(?<![\w@.-])localhost(?::\d+)(?:[/?#][^\s<>\"“”]*)?"
    r"|(?<![\w/.<~])~?/(?:[\w.-]+/)+[\w.-]*"
    rf"|(?<![\w@.-])(?:[A-Za-z0-9-]{{2,}}\.)+{_TLD}(?![\w@-]|\.\w)(?::\d+)?(?:[/?#][^\s<>\"“”]*)?"
)
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_SCHEME = re.compile(r"^(?:https?|ftp|wss?)://|^mailto:")
_ADDRESS_PART = re.compile(r"[A-Za-z]+|\d+|[^\w\s]|_|\w")
_ADDRESS_SYMBOLS = {
    ".": "dot",
    "/": "slash",
    "?": "question mark",
    "=": "equals",
    "&": "and",
    "-": "dash",
    "_": "underscore",
    ":": "colon",
    "@": "at",
    "#": "hash",
    "%": "percent",
    "+": "plus",
    "~": "tilde",
    ",": "comma",
    "*": "star",
    "!": "exclamation mark",
    "$": "dollar",
    ";": "semicolon",
}
_SHORT_WORDS = frozenset(
    re.findall(r"\w+", "am an as at be by co do go he hi if in is it me my no of on or so to up us we")
)

POINT = "[point](/pYnt/)"  # as hibari says it in decimals, without stress; the brackets are its syntax for phonemes

_IP = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d)")
_VERSION = re.compile(r"(?<![\w.])v?\d+(?:\.\d+){2,}(?![\w]|\.\d)")
_AGAIN = re.compile(r"(?<=[Vv]ersion )v(?=\d)")  # it is said already
_V_NUMBER = re.compile(r"(?<![\w.])[vV](?=\d+\.\d)")
_FILE_DOT = re.compile(r"(?<=[A-Za-z0-9_]{3})\.(?=[a-z]{1,10}\b|[A-Z]{2,}\b)([A-Za-z]+)")
_DOTFILE = re.compile(r"(?<![\w.])\.(?=[a-z]{2,})")

_PHONE = re.compile(
    r"(?<![\w.,/$£€-])(?:"
    r"(?:\+?1[-. ])?(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-. ]\d{4}"
    r"|\d{3}-\d{4}"
    r"|\+\d{1,3}(?:[-. ]?\(?\d{1,4}\)?){2,5}"
    r")(?![\w-]|[.,/]\d)"
)


def read_addresses(text: TrackedText) -> TrackedText:
    """URLs, e-mail addresses, IP and version numbers, file names and phone numbers as words."""
    plain = text.text
    if any(mark in plain for mark in ".@/:"):
        text = text.sub(_EMAIL, _address).sub(_URL, _address)
        text = text.sub(_IP, lambda m: " dot ".join(" ".join(part) for part in m.group().split(".")))
        text = text.sub(_AGAIN, "").sub(
            _VERSION, lambda m: f" {POINT} ".join(m.group().replace("v", "version ").split("."))
        )
        text = text.sub(_V_NUMBER, "version ")
        text = text.sub(_FILE_DOT, lambda m: f" dot {_word(m.group(1))}").sub(_DOTFILE, "dot ")
    return text.sub(_PHONE, _phone)


def _address(match: re.Match[str]) -> str:
    whole = match.group()
    address = whole.rstrip(".,;:!?'…*")
    while (
        address and address[-1] in ")]}" and address.count(address[-1]) > address.count("([{"[")]}".index(address[-1])])
    ):
        address = address[:-1].rstrip(".,;:!?'…*")
    trailing = whole[len(address) :]
    words = map(_word, _ADDRESS_PART.findall(_SCHEME.sub("", address).rstrip("/")))
    return " ".join(filter(None, words)) + trailing


def _word(part: str) -> str:
    """One part of an address: symbols named, letter groups nobody pronounces spelled out, long numbers by digit."""
    if part in _ADDRESS_SYMBOLS:
        return _ADDRESS_SYMBOLS[part]
    if part.isdigit():
        return " ".join(part) if len(part) > 4 or part[0] == "0" else part
    lower = part.lower()
    if lower == "a":
        return "[a](/ˈA/)"  # the letter, not the article: hibari's syntax for given phonemes
    unpronounceable = len(part) == 2 or not set(lower) & set("aeiouy")
    if part.isascii() and part.isalpha() and unpronounceable and len(part) <= 5 and lower not in _SHORT_WORDS:
        return ".".join(part.upper())
    return part if part.isalnum() else ""


def _phone(match: re.Match[str]) -> list[Part]:
    """Digit by digit, a short rest between the groups."""
    parts: list[Part] = []
    for group in re.finditer(r"\+|\d+", match.group()):
        start, end = group.start() + match.start(), group.end() + match.start()
        if group.group() == "+":
            parts.append(("plus ", start, end))
            continue
        if parts and parts[-1][0] != "plus ":
            parts.append((", ", start, start))
        parts += [(" " * (i > start) + match.string[i], i, i + 1) for i in range(start, end)]
    return parts
