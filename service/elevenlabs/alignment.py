"""When each character of the caller's text sounds, told piece by piece of audio with no gap and no overlap.

The engine says when a word begins, and when it is over how long it was; clients of this API want every piece of audio to come
with characters that span it whole, as they add the spans up to a clock. So the first character of a word is told where it
begins, the others are spread evenly once it is over, and what stands between words follows the word before. Knows no message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from tts_spec.types import Word, WordOnset


@dataclass(frozen=True, slots=True)
class Span:
    """The characters of one piece of audio: where each begins, in seconds of the stream. The last one ends with the piece.

    Never empty: a piece in which no character begins has one entry "".
    """

    characters: tuple[str, ...]
    starts_s: tuple[float, ...]  # the first is the start of the piece
    end_s: float

    @property
    def ends_s(self) -> tuple[float, ...]:
        """Where each character ends: where the next begins."""
        return (*self.starts_s[1:], self.end_s)


class CharacterClock:
    """One stream: told of text and words, asked for the span of each piece of audio in turn."""

    def __init__(self) -> None:
        self._text = ""
        self._next = 0  # the first character not yet told
        self._words: deque[Word] = deque()  # over, not yet told whole
        self._onsets: deque[WordOnset] = deque()  # begun, their beginning not yet told
        self._said_s = 0.0  # end of the last word told

    def text(self, piece: str) -> None:
        """The caller sent text."""
        self._text += piece

    def words(self, onsets: Iterable[WordOnset], words: Iterable[Word]) -> None:
        """These begin, and those are over; both in order."""
        self._onsets.extend(onsets)
        self._words.extend(words)

    def take(self, start_s: float, end_s: float, *, last: bool = False) -> Span:
        """The span of the next piece. ``last``: nothing follows, all that is left belongs to it."""
        found: list[tuple[str, float]] = []
        while self._words and (last or self._words[0].start_s < end_s):
            word = self._words[0]
            self._up_to(word.start_char, self._said_s, found)
            step = (word.end_s - word.start_s) / max(1, word.end_char - word.start_char)
            while self._next < min(word.end_char, len(self._text)):
                at_s = word.start_s + (self._next - word.start_char) * step
                if at_s >= end_s and not last:
                    break
                self._up_to(self._next + 1, at_s, found)
            if self._next < word.end_char:
                break
            self._words.popleft()
            self._said_s = word.end_s
            self._up_to(self._gap_end(), word.end_s, found)
        if last:
            self._up_to(len(self._text), self._said_s, found)
        elif not self._words:
            self._begin(end_s, found)
        return _span(found, start_s, end_s)

    def _up_to(self, end: int, at_s: float, found: list[tuple[str, float]]) -> None:
        """Tell the characters before ``end`` as beginning at ``at_s``."""
        found.extend((character, at_s) for character in self._text[self._next : end])
        self._next = max(self._next, min(end, len(self._text)))

    def _gap_end(self) -> int:
        """The next letter or digit not yet told; what stands before it is between words."""
        for index in range(self._next, len(self._text)):
            if self._text[index].isalnum():
                return index
        return len(self._text)

    def _begin(self, end_s: float, found: list[tuple[str, float]]) -> None:
        """Tell the first character of the word that begins before ``end_s`` and goes on after it."""
        while self._onsets and self._onsets[0].start_char < self._next:
            self._onsets.popleft()
        if self._onsets and self._onsets[0].start_s < end_s:
            onset = self._onsets.popleft()
            self._up_to(onset.start_char, self._said_s, found)
            self._up_to(onset.start_char + 1, onset.start_s, found)


def _span(found: list[tuple[str, float]], start_s: float, end_s: float) -> Span:
    starts, at_s = [], start_s
    for _, began_s in found:
        at_s = min(max(at_s, began_s), end_s)
        starts.append(at_s)
    if not found:
        return Span(("",), (start_s,), end_s)
    starts[0] = start_s
    return Span(tuple(character for character, _ in found), tuple(starts), end_s)
