"""The text side of one stream: pieces of text in, phonemes for the script out, in the order they are spoken.

Clauses are phonemised one at a time, only as the voice comes near them, so that the first is spoken at once however long the text. What a
phoneme input shows of its future ends with its clause: the output does not depend on when the rest arrived. Knows no model and no audio.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from models.speech_lm import OFFSETS
from tts_spec.text.clauses import Clause, ClauseSplitter
from tts_spec.text.frontend import Frontend
from tts_spec.text.phonemes import SourceWord
from tts_spec.text.symbols import PAD, START, STOP, symbol_ids
from tts_spec.types import SpeechWarning

CLOSING = frozenset(symbol_ids(".!?…,;:—"))  # a sentence that ends in none of these gets a full stop
FULL_STOP, SPACE = symbol_ids(". ")


@dataclass(frozen=True, slots=True)
class SpokenPhoneme:
    """One phoneme of the stream."""

    symbol: int  # id
    window: tuple[int, ...]  # symbol ids at OFFSETS
    word: SourceWord | None
    pause_s: float  # silence to insert after it
    ends_sentence: bool


class Passage:
    """Text of one stream as it arrives."""

    def __init__(self, frontend: Frontend, *, british: bool) -> None:
        self._frontend = frontend
        self._british = british
        self._splitter = ClauseSplitter()
        self._waiting: deque[Clause | None] = deque()  # None = a flush: whatever sentence is open ends here
        self._open = False  # whether a sentence has begun and not ended
        self._last = PAD  # last symbol of the open sentence
        self.flushes = 0  # flush marks reached by ``read``
        self.read_chars = 0  # of the caller's text that ``read`` has taken
        self.ended = False

    def feed(self, piece: str) -> None:
        """More text."""
        self._waiting.extend(self._splitter.feed(piece))

    def flush(self) -> None:
        """Speak what is there as if nothing followed."""
        self._waiting.extend(self._splitter.flush())
        self._waiting.append(None)

    @property
    def holds(self) -> bool:
        """Whether there is text whose clause is not complete."""
        return self._splitter.holds

    def hurry(self, whole: bool) -> None:
        """Speak what is there of the open clause: whole words, or all of it. What follows continues the sentence."""
        self._waiting.extend(self._splitter.release(whole))

    def end(self) -> None:
        """No more text."""
        self.flush()
        self.ended = True

    @property
    def has_more(self) -> bool:
        """Whether ``read`` would take something."""
        return bool(self._waiting)

    def read(self) -> tuple[list[SpokenPhoneme], tuple[SpeechWarning, ...]]:
        """Phonemes and warnings of the next clause; both may be empty."""
        clause = self._waiting.popleft()
        if clause is None:
            self.flushes += 1
            return (self._close() if self._open else []), ()
        self.read_chars = clause.start + len(clause.text)
        made = self._frontend.phonemize(clause.text, clause.start, self._british)
        ids: list[int] = []
        words: list[SourceWord | None] = []
        pauses: list[float] = []
        if made.phonemes:
            ids.append(SPACE if self._open else START)
            words.append(None)
            pauses.append(0.0)
        for phoneme in made.phonemes:
            ids += symbol_ids(phoneme.symbol)
            words.append(None if phoneme.word is None else made.words[phoneme.word])
            pauses.append(phoneme.pause_s)
        before = self._last if self._open else PAD
        self._open = self._open or bool(ids)
        self._last = ids[-1] if ids else self._last
        if clause.end_of_sentence and self._open:
            closing = self._closing()
            ids += closing
            words += [None] * len(closing)
            pauses += [0.0] * len(closing)
        return self._spoken(ids, words, pauses, before), made.warnings

    def _close(self) -> list[SpokenPhoneme]:
        before = self._last
        ids = self._closing()
        return self._spoken(ids, [None] * len(ids), [0.0] * len(ids), before)

    def _closing(self) -> list[int]:
        """The symbols that end the open sentence."""
        ids = [STOP] if self._last in CLOSING else [FULL_STOP, STOP]
        self._open, self._last = False, PAD
        return ids

    def _spoken(
        self, ids: list[int], words: list[SourceWord | None], pauses: list[float], before: int
    ) -> list[SpokenPhoneme]:
        padded = [before, *ids, *[PAD] * OFFSETS[-1]]  # OFFSETS start at -1
        return [
            SpokenPhoneme(symbol, tuple(padded[i : i + len(OFFSETS)]), word, pause, symbol == STOP)
            for i, (symbol, word, pause) in enumerate(zip(ids, words, pauses, strict=True))
        ]
