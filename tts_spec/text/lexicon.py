"""Readings of words that the dictionaries do not have, or have otherwise: from the ``[lexicon]`` of a TOML file.

    [lexicon]
    kubernetes = "koobernetees"        # read as if this were written
    GIF = "/ʤɪf/"                      # IPA between slashes

A word in lower case stands for every way to write it, one with capitals only for itself. Knows no audio.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from tts_spec.text.pronunciation import english, from_ipa
from tts_spec.types import SpeechError


class Lexicon:
    """Words and how they are read. Raises ``SpeechError`` for an entry that cannot be."""

    def __init__(self, entries: Mapping[str, str] | None = None) -> None:
        self._readings: dict[str, str] = {}  # as they are written
        self._phonemes: dict[str, str] = {}
        for word, reading in (entries or {}).items():
            if not isinstance(reading, str) or not reading.strip() or not re.fullmatch(r"[^<>&]*\w[^<>&]*", word):
                raise SpeechError(
                    "invalid_value", f"lexicon has {word!r} = {reading!r}; allowed: word = reading", "lexicon"
                )
            if reading.startswith("/") and reading.endswith("/"):
                symbols = english(from_ipa(reading))
                if symbols is None:
                    raise SpeechError(
                        "invalid_value", f"lexicon has {word!r} = {reading!r}; allowed: English IPA", "lexicon"
                    )
                self._phonemes[word] = symbols
            else:
                self._readings[word] = reading
        self._spoken = _pattern(self._phonemes)
        self._written = _pattern(self._readings)

    @property
    def written(self) -> re.Pattern[str] | None:
        """Finds the words that are read as something else written; see ``reading``."""
        return self._written

    def reading(self, match: re.Match[str]) -> list[tuple[str, int, int]]:
        """What is read for a match of ``written``: a part for ``TrackedText.sub``."""
        return [(_entry(self._readings, match.group()), *match.span())]

    def spoken(self, text: str) -> Iterator[tuple[re.Match[str], str]]:
        """The words whose phonemes are given, and the phonemes."""
        if self._spoken is not None:
            for match in self._spoken.finditer(text):
                yield match, _entry(self._phonemes, match.group())


def read_lexicon(file: Path | None) -> dict[str, str]:
    """The ``[lexicon]`` of a file, nothing where there is none. Raises ``SpeechError`` for a file that cannot be read."""
    if file is None:
        return {}
    try:
        entries = tomllib.loads(file.read_text(encoding="utf-8")).get("lexicon", {})
    except (OSError, ValueError) as error:
        raise SpeechError("invalid_value", f"lexicon file {file}: {error}", "lexicon") from None
    if not isinstance(entries, dict):
        raise SpeechError("invalid_value", f"lexicon file {file}: lexicon is {entries!r}; allowed: a table", "lexicon")
    Lexicon(entries)  # a bad entry is told here, where the file is known
    return entries


def _pattern(words: Mapping[str, str]) -> re.Pattern[str] | None:
    if not words:
        return None
    ways = (
        f"(?i:{re.escape(word)})" if word == word.lower() else re.escape(word)
        for word in sorted(words, key=len, reverse=True)
    )
    return re.compile(rf"(?<!\w)(?:{'|'.join(ways)})(?!\w)")


def _entry(entries: Mapping[str, str], written: str) -> str:
    return entries[written] if written in entries else entries[written.lower()]
