"""Text to phonemes: the one door to the text front end.

Joins the pre-pass, hibari's normalisation and hibari's phonemes, and ties every phoneme to a word of the caller's text.
Knows no audio and no model. Never changes; safe to call from several threads.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tts_spec.text import g2p
from tts_spec.text.lexicon import Lexicon
from tts_spec.text.markup import TAG, Segment
from tts_spec.text.normalize import normalize
from tts_spec.text.phonemes import PUNCTUATION, Phoneme, SourceWord, Utterance
from tts_spec.text.prepass import prepare
from tts_spec.text.symbols import is_symbol
from tts_spec.text.tracked import Span, TrackedText
from tts_spec.types import SpeechWarning

_Symbol = tuple[str, Span | None, float]  # symbol, source span of the word it belongs to, pause after it in seconds

_CHUNK = re.compile(r"(?:(?!--)[^\s—…])+")
_LEADING = "\"'“‘«([{<*_`|>¿¡"
_TRAILING = ".,;:!?\"'”’»)]}>*_`~|–-"
_AMOUNT = re.compile(r"[$£€]?\.?\d")
_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.){2,}")
# hibari tries every cut of a run without spaces, in cubic time; no word is this long
_ENDLESS = re.compile(r"(\S{40})(?=\S)")
_LAST_MARK = re.compile(r"([.!?])[\"'”’»)\]}*_\s]*\Z")


class Frontend:
    """The English front end; American by default, British spelling-to-sound rules on request."""

    def __init__(self, lexicon: Mapping[str, str] | None = None) -> None:
        """``lexicon``: word -> reading, see ``lexicon.py``; raises ``SpeechError`` for an entry that cannot be."""
        self._lexicon = Lexicon(lexicon)

    def load(self, british: bool = False) -> None:
        """Read dictionaries and networks of one accent now, so that the first clause does not wait for them."""
        g2p.load(british)

    def phonemize(self, clause_text: str, offset: int, british: bool = False) -> Utterance:
        """Phonemes of one clause. ``offset`` is the place of clause_text[0] in everything the caller sent; all offsets
        in the result count from there. Never fails on any text; what is not spoken is named in ``warnings``."""
        prepared = prepare(clause_text, self._lexicon)
        symbols: list[_Symbol] = []
        for segment in prepared.segments:
            spoken = _given_symbols(segment) if segment.phonemes else _segment_symbols(segment.text, british)
            if spoken and symbols and symbols[-1][0] != " ":
                symbols.append((" ", None, 0.0))
            symbols += spoken
            if segment.pause_s > 0:
                symbols.append((" ", None, segment.pause_s))
        spans = [span for _, span, _ in symbols if span is not None]
        words, unsaid = _source_words(clause_text, prepared.warnings, spans)
        warnings = sorted((*prepared.warnings, *unsaid), key=lambda w: w.start)
        return Utterance(
            phonemes=_phonemes(symbols, words),
            words=tuple(SourceWord(clause_text[a:b], a + offset, b + offset) for a, b in words),
            warnings=tuple(replace(w, start=w.start + offset, end=w.end + offset) for w in warnings),
        )


def _given_symbols(segment: Segment) -> list[_Symbol]:
    """The phonemes the caller says, all of the words they stand for."""
    span = segment.text.span(0, len(segment.text.text))
    return [(symbol, span if _sounds(symbol) else None, 0.0) for symbol in segment.phonemes]


def _segment_symbols(prepared: TrackedText, british: bool) -> list[_Symbol]:
    """Symbols of a stretch without pauses, [] when nothing in it has a sound."""
    text = normalize(prepared).sub(_ENDLESS, r"\1 ")
    symbols: list[_Symbol] = []
    for token in g2p.spoken(text.text, british):
        span = text.span(token.start, token.end) if any(map(_sounds, token.phonemes)) else None
        symbols += [(symbol, span, 0.0) for symbol in token.phonemes]
        if token.space_after:
            symbols.append((" ", None, 0.0))
    while symbols and symbols[0][0] == " ":
        symbols.pop(0)
    while symbols and symbols[-1][0] == " ":
        symbols.pop()
    symbols = [s for s in symbols if is_symbol(s[0])]
    if all(span is None for _, span, _ in symbols):
        return []
    # hibari takes the full stop of a last "a.m." or "U.S." for a part of the word; the sentence still ends
    mark = _LAST_MARK.search(prepared.text)
    if mark and _sounds(symbols[-1][0]):
        symbols.append((mark.group(1), None, 0.0))
    return symbols


def _sounds(symbol: str) -> bool:
    return symbol not in PUNCTUATION and is_symbol(symbol)


def _source_words(
    text: str, warnings: Iterable[SpeechWarning], spans: Sequence[Span]
) -> tuple[list[Span], list[SpeechWarning]]:
    """Words of ``text`` that ``spans`` touch, in order; written words that one span touches together become one.

    Also a warning for each written word with letters or digits that no span touches: hibari found no sound for it."""
    dropped = [match.span() for match in TAG.finditer(text)] + [(w.start, w.end) for w in warnings]
    for start, end in dropped:
        text = text[:start] + " " * (end - start) + text[end:]
    written = [match.span() for match in _CHUNK.finditer(text)]
    words = [_bare(text, a, b) for a, b in written]
    starts, ends = [a for a, _ in written], [b for _, b in written]
    ranges = set()
    for start, end in spans:
        first, last = bisect_right(ends, start), bisect_left(starts, end)
        if first < last:
            ranges.add((first, last))
        for i in range(first, last):
            if words[i][0] >= end or start >= words[i][1]:
                words[i] = written[i]  # a sign around the bare word is spoken too
    merged: list[Span] = []
    for first, last in sorted(ranges):
        if merged and first < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    spoken = {i for first, last in merged for i in range(first, last)}
    unsaid = [
        SpeechWarning("unspeakable", f"{text[a:b]!r} has no sound and is left out", a, b)
        for i, (a, b) in enumerate(words)
        if i not in spoken and any(map(str.isalnum, text[a:b]))
    ]
    return [(words[first][0], words[last - 1][1]) for first, last in merged], unsaid


def _bare(text: str, start: int, end: int) -> Span:
    """The written word without the quotes, brackets and stops around it (all of it when nothing else is left)."""
    a, b = start, end
    while a < b and text[a] in _LEADING:
        a += 1
    if text[a:b].startswith(("-", "–")) and not _AMOUNT.match(text, a + 1, b):
        a += 1
    while b > a and text[b - 1] in _TRAILING and not _closes(text, a, b):
        b -= 1
    if _DOTTED.fullmatch(text, a, min(b + 1, end)):
        b += 1  # "U.S." keeps its last stop
    return (a, b) if a < b else (start, end)


def _closes(text: str, a: int, b: int) -> bool:
    """Whether text[a:b] ends with a bracket that it opened itself, as in "401(k)"."""
    return text[b - 1] == ")" and text.count(")", a, b) <= text.count("(", a, b)


def _phonemes(symbols: Sequence[_Symbol], words: Sequence[Span]) -> tuple[Phoneme, ...]:
    starts = [start for start, _ in words]
    found: list[int | None] = []
    for _, span, _ in symbols:
        at = bisect_right(starts, span[1] - 1) - 1 if span else -1
        found.append(at if span and at >= 0 and words[at][1] > span[0] else None)
    for i in range(1, len(found) - 1):  # a space within a word that is spoken as several
        if symbols[i][0] == " " and symbols[i][2] == 0.0 and found[i - 1] == found[i + 1]:
            found[i] = found[i - 1]
    return tuple(Phoneme(symbol, word, pause) for (symbol, _, pause), word in zip(symbols, found, strict=True))
