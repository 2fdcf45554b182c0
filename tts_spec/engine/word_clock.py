"""When each word of the caller begins and ends to sound, counted in committed frames and inserted silences. Knows no audio."""

from __future__ import annotations

from tts_spec.text.phonemes import SourceWord
from tts_spec.types import Word, WordOnset


class WordClock:
    """Told of phonemes, frames and silences in order; gives the words that begin, and those that are over."""

    def __init__(self, frame_s: float) -> None:
        self._frame_s = frame_s
        self._frames = 0
        self._silence_s = 0.0
        self._word: SourceWord | None = None
        self._word_start_s = 0.0
        self._begun: list[WordOnset] = []
        self._done: list[Word] = []

    def enter(self, word: SourceWord | None) -> None:
        """A phoneme of ``word`` begins, or one of no word."""
        if word is self._word:
            return
        now = self._now_s
        if self._word is not None:
            source = self._word
            self._done.append(Word(source.text, source.start_char, source.end_char, self._word_start_s, now))
        if word is not None:
            self._begun.append(WordOnset(word.text, word.start_char, word.end_char, now))
        self._word, self._word_start_s = word, now

    def frame(self) -> None:
        """A frame is complete."""
        self._frames += 1

    def silence(self, seconds: float) -> None:
        """Silence was inserted; it belongs to no word."""
        self.enter(None)
        self._silence_s += seconds

    def take(self) -> tuple[Word, ...]:
        """The words that ended since the last call."""
        done, self._done = tuple(self._done), []
        return done

    def take_onsets(self) -> tuple[WordOnset, ...]:
        """The words that began since the last call."""
        begun, self._begun = tuple(self._begun), []
        return begun

    @property
    def _now_s(self) -> float:
        return self._frames * self._frame_s + self._silence_s
