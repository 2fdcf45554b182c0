"""When each character of the caller's text sounds, told piece by piece of audio with no gap and no overlap.

The engine times words, most of them only when they are over; clients of this API want every piece of audio to come with
characters that span it whole, as they add the spans up to a clock. So characters of a word are spread evenly over it, what
stands between words follows the word before, and a word that is just beginning shows its first character where the last
word ended, unless punctuation says that there is a pause. Knows no message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from tts_spec.types import Word

PAUSES = frozenset(".,;:!?…—–\n")


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
        self._words: deque[Word] = deque()  # known, not yet told whole
        self._said_s = 0.0  # end of the last word told

    def text(self, piece: str) -> None:
        """The caller sent text."""
        self._text += piece

    def words(self, words: Iterable[Word]) -> None:
        """The engine knows when these sound; in order."""
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
        elif not self._words and self._said_s < end_s and self._goes_on():
            self._up_to(self._gap_end() + 1, self._said_s, found)
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

    def _goes_on(self) -> bool:
        """The next word is there and follows the last one without a pause, or is the first of all."""
        first = self._gap_end()
        if first == len(self._text):
            return False
        between = first
        while between and not self._text[between - 1].isalnum():
            between -= 1
        if between == first and first:
            return False  # its beginning has been told
        return not PAUSES & set(self._text[between:first])


def _span(found: list[tuple[str, float]], start_s: float, end_s: float) -> Span:
    starts, at_s = [], start_s
    for _, began_s in found:
        at_s = min(max(at_s, began_s), end_s)
        starts.append(at_s)
    if not found:
        return Span(("",), (start_s,), end_s)
    starts[0] = start_s
    return Span(tuple(character for character, _ in found), tuple(starts), end_s)
