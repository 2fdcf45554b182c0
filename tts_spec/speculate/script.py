"""The script: which decisions are legal next and what is forced after them. A pure state machine over committed decisions.

A stream's phonemes stand in a row; some of them end a sentence. At a frame boundary the model may stay (another frame), ADVANCE to the
next phoneme or, at the last phoneme of a sentence, END it; then the next phoneme's input is forced. Every phoneme lasts at least one
frame and at most its cap, so none can vanish or hang. Knows decisions and counts; knows no model, no noise and no audio.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from numba.extending import register_jitable

# The rules, for the classes below and for compiled code alike.


@register_jitable
def decision_of(option: int, due: int, codebooks: int, size: int) -> int:
    """See ``Vocabulary.decision``."""
    return due * size + option if option < size else codebooks * size + option - size


@register_jitable
def allowed_at(frames: int, due: int, cap: int, end: bool) -> tuple[bool, bool, bool]:
    """(audio, advance, end) of ``Script.allowed`` on a phoneme that lasts at most ``cap`` frames; ``end``: it ends a sentence."""
    if due:
        return True, False, False
    return frames < cap, frames >= 1 and not end, frames >= 1 and end


@register_jitable
def state_after(phoneme: int, frames: int, due: int, decision: int, codebooks: int, size: int) -> tuple[int, int, int]:
    """(phoneme, frames, due) of ``Script.after``."""
    if decision >= codebooks * size:
        return phoneme + 1, 0, 0
    return phoneme, frames + (1 if due == 0 else 0), (due + 1) % codebooks


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
        decision: int = decision_of(option, due, self.codebooks, self.codebook_size)
        return decision

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
        phoneme, frames, due = state
        return Allowed(*allowed_at(frames, due, self.caps[phoneme], self.ends[phoneme]))

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
        return ScriptState(*state_after(*state, decision, self.vocabulary.codebooks, self.vocabulary.codebook_size))
