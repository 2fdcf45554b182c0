"""The script: which decisions are legal next and what is forced after them. A pure state machine over committed decisions.

A stream's phonemes stand in a row; some of them end a sentence. At a frame boundary the model may stay (another frame), ADVANCE to the
next phoneme or, at the last phoneme of a sentence, END it; then the next phoneme's input is forced. Every phoneme lasts at least one
frame and at most its cap, so none can vanish or hang. Knows decisions and counts; knows no model, no noise and no audio.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """How decisions are numbered: codebook k owns [k N, (k + 1) N), then ADVANCE, then END."""

    codebooks: int
    codebook_size: int

    @property
    def advance(self) -> int:
        return self.codebooks * self.codebook_size

    @property
    def end(self) -> int:
        return self.advance + 1

    def decision(self, option: int, due: int) -> int:
        """The decision behind ``option``, an index into the logits of codebook ``due``."""
        size = self.codebook_size
        return due * size + option if option < size else self.advance + option - size

    def option(self, decision: int) -> int:
        """Its index into the logits of its codebook."""
        return (
            decision % self.codebook_size if decision < self.advance else self.codebook_size + decision - self.advance
        )


class ScriptState(NamedTuple):
    """Where the stream stands: the input now due and what may be decided on it."""

    phoneme: int = 0  # index of the current phoneme
    frames: int = 0  # frames of it begun so far
    due: int = 0  # codebook decided next; 0 = a frame boundary


class Allowed(NamedTuple):
    """The legal kinds of decision at a state."""

    audio: bool
    advance: bool
    end: bool


@dataclass(slots=True)
class Script:
    """The phonemes of one stream as they become known. Only ever grows at the end."""

    vocabulary: Vocabulary
    caps: list[int]  # per phoneme: most frames
    ends: list[bool]  # per phoneme: the last one of a sentence

    @classmethod
    def empty(cls, vocabulary: Vocabulary) -> Script:
        return cls(vocabulary, [], [])

    def __len__(self) -> int:
        return len(self.caps)

    def append(self, cap: int, *, end: bool) -> None:
        """Add one phoneme that lasts 1 to ``cap`` frames."""
        if cap < 1:
            raise ValueError(f"cap is {cap}; allowed: a whole number from 1")
        self.caps.append(cap)
        self.ends.append(end)

    def waits(self, state: ScriptState) -> bool:
        """Whether the state's phoneme has not arrived yet: nothing can be decided."""
        return state.phoneme >= len(self.caps)

    def allowed(self, state: ScriptState) -> Allowed:
        """What may be decided at ``state``, which must not be waiting."""
        if state.due:
            return Allowed(audio=True, advance=False, end=False)
        may_leave = state.frames >= 1
        end = self.ends[state.phoneme]
        return Allowed(
            audio=state.frames < self.caps[state.phoneme],
            advance=may_leave and not end,
            end=may_leave and end,
        )

    def is_legal(self, state: ScriptState, decision: int) -> bool:
        """Whether ``decision`` may be taken at ``state``; False for any decision while waiting."""
        if self.waits(state):
            return False
        allowed = self.allowed(state)
        if decision == self.vocabulary.advance:
            return allowed.advance
        if decision == self.vocabulary.end:
            return allowed.end
        return allowed.audio and decision // self.vocabulary.codebook_size == state.due

    def after(self, state: ScriptState, decision: int) -> ScriptState:
        """The state that follows a legal ``decision``."""
        if decision >= self.vocabulary.advance:
            return ScriptState(phoneme=state.phoneme + 1)
        frames = state.frames + (state.due == 0)
        return ScriptState(state.phoneme, frames, (state.due + 1) % self.vocabulary.codebooks)
