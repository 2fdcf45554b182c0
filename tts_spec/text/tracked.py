"""Text that remembers where it came from: rewriting by regular expressions without losing the source offsets.

Knows nothing of language; the rules that rewrite live elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher

Span = tuple[int, int]
# A part of a replacement and the indices of the old text it stands for.
Part = tuple[str, int, int]
Replacement = str | Sequence[Part]

_CHUNK = re.compile(r"\s+|\S+")
_WORD = re.compile(r"\S+")
_NOT_ALNUM = re.compile(r"[\W_]+")


class TrackedText:
    """A string and, for each of its characters, the span of the source it stands for. Immutable.

    ``origins`` is [len(text)] of (start, end) offsets; by default the text is its own source.
    """

    __slots__ = ("origins", "text")

    def __init__(self, text: str, origins: Sequence[Span] | None = None) -> None:
        self.text = text
        self.origins: Sequence[Span] = [(i, i + 1) for i in range(len(text))] if origins is None else origins
        assert len(self.origins) == len(text), (len(self.origins), len(text))

    def __getitem__(self, part: slice) -> TrackedText:
        return TrackedText(self.text[part], self.origins[part])

    def span(self, start: int, end: int) -> Span:
        """The source span that text[start:end] stands for; of an empty range, that of a neighbour."""
        covered = self.origins[start:end] or self.origins[max(start - 1, 0) : start] or self.origins[start : start + 1]
        return (min(a for a, _ in covered), max(b for _, b in covered)) if covered else (0, 0)

    def sub(self, pattern: re.Pattern[str], replace: str | Callable[[re.Match[str]], Replacement]) -> TrackedText:
        """Like ``pattern.sub``. A new word takes the source of the old word it resembles, or its share of the old words
        between two such; a callable may say it exactly by returning parts."""
        text: list[str] = []
        origins: list[Span] = []
        done = 0
        for match in pattern.finditer(self.text):
            new = match.expand(replace) if isinstance(replace, str) else replace(match)
            if new == match.group():
                continue
            text.append(self.text[done : match.start()])
            origins += self.origins[done : match.start()]
            for piece, start, end in _align(match.group(), new, match.start()) if isinstance(new, str) else new:
                text.append(piece)
                origins += [self.span(start, end)] * len(piece)
            done = match.end()
        if not text:
            return self
        return TrackedText("".join(text) + self.text[done:], [*origins, *self.origins[done:]])

    def strip(self) -> TrackedText:
        lead = len(self.text) - len(self.text.lstrip())
        return self[lead : max(lead, len(self.text.rstrip()))]


def _align(old: str, new: str, base: int) -> list[Part]:
    """Parts of ``new``, whose words are matched with the words of ``old`` (which begins at index ``base``)."""
    old_words = [match.span() for match in _WORD.finditer(old)]
    chunks = [match.group() for match in _CHUNK.finditer(new)]
    new_words = [chunk for chunk in chunks if not chunk.isspace()]
    if len(old_words) < 2:
        return [(chunk, base, base + len(old)) for chunk in chunks]
    targets = _word_targets([_key(old[a:b]) for a, b in old_words], [_key(word) for word in new_words])
    parts: list[Part] = []
    word = 0
    for chunk in chunks:
        if chunk.isspace():
            at = parts[-1][2] if parts else base
            parts.append((chunk, at, at))
        else:
            first, last = targets[word]
            parts.append((chunk, base + old_words[first][0], base + old_words[last - 1][1]))
            word += 1
    return parts


def _word_targets(old: list[str], new: list[str]) -> list[Span]:
    """For each new word the range of old words (never empty) it stands for."""
    targets: list[Span] = []
    unsaid = 0  # old words just before that no new word stands for; the next one takes them over
    for _, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if c == d:
            unsaid = b - a
        for i in range(d - c):
            if a == b:  # an insertion belongs to the word before it
                targets.append((max(a - 1, 0), max(a, 1)))
            else:
                first = a + i * (b - a) // (d - c)
                targets.append((first - unsaid, max(first + 1, a + (i + 1) * (b - a) // (d - c))))
            unsaid = 0
    if unsaid and targets:
        targets[-1] = (targets[-1][0], len(old))
    return targets


def _key(word: str) -> str:
    return _NOT_ALNUM.sub("", word).casefold() or word
