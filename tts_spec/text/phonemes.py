"""The values the text front end gives: phonemes, and the words of the caller they belong to.

Knows nothing of how they are made.
"""

from __future__ import annotations

from dataclasses import dataclass

from tts_spec.types import SpeechWarning

PUNCTUATION = frozenset(';:,.!?—…"()“” ')  # symbols that are heard as prosody at most


@dataclass(frozen=True, slots=True)
class Phoneme:
    """One symbol of the alphabet in ``symbols.py``: a sound, a stress or length mark, a space or punctuation."""

    symbol: str
    word: int | None  # index into Utterance.words; None = between words
    pause_s: float = 0.0  # silence in seconds the caller asked for after this symbol, 0 .. 10


@dataclass(frozen=True, slots=True)
class SourceWord:
    """A word as the caller wrote it. Usually one written word; several where they are only spoken as a whole."""

    text: str
    start_char: int
    end_char: int  # offsets in everything the caller sent: caller_text[start_char:end_char] == text


@dataclass(frozen=True, slots=True)
class Utterance:
    """What to say for one clause. No phonemes at all when nothing in it can be spoken."""

    phonemes: tuple[Phoneme, ...]
    words: tuple[SourceWord, ...]  # the spoken words in the order of the text, each with at least one phoneme
    warnings: tuple[SpeechWarning, ...]
