"""Drafters: who guesses the next decisions. A wrong guess costs time, never changes the output.

Knows the stream's state and a small model; knows nothing of the target.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from models.lm_stream import ConditionedSource, StreamInput
from models.products import Floats
from models.slots import MAX_ROWS
from models.speech_lm import NO_TOKEN
from tts_spec.speculate.line import chance, draft_line
from tts_spec.speculate.noise import Use
from tts_spec.speculate.round import Draft, StreamState, legal_prefix
from tts_spec.speculate.sampling import HISTORY, Distribution, Sampler, draw
from tts_spec.speculate.script import Script

Row = npt.NDArray[np.float32]  # [codebook_size + 2] logits of one position


# A line is drafted on while it is right with at least this chance: a further row and a pass of the drafter cost about a third of the time
# a token takes, and the next guess is right in two of three cases.
LIKELY_ENOUGH = 0.4
TAIL_RIGHT = 0.6  # chance of a recycled sample
RIVAL_RIGHT = 0.4  # chance of the second choice where the first is wrong
RIVAL_WORTH = 0.12  # chance at which a second choice is worth its row

NOTHING_TOLD = np.zeros((0, 0), np.float32)


class Guess(NamedTuple):
    """A draft, and how sure its drafter is."""

    decision: int
    second: int  # what it would be without that one
    margin: float  # see ``Sampler.choose_two``


class NoDrafter:
    """Plain autoregressive decoding."""

    name = "none"

    def propose(self, state: StreamState, count: int) -> Draft:
        """Nothing."""
        return Draft()

    def propose_with_odds(self, state: StreamState, count: int) -> list[tuple[int, Distribution]]:
        """Nothing."""
        return []


class LineDrafter(ABC):
    """Extends the recycled tail by a line of guesses, one after another, under the target's own noise, with second choices beside it.

    The tail (the target's samples past the last mismatch) is taken as it is while legal. Inside a frame it is left alone: behind a wrong
    token it is worse than the drafter.
    """

    def __init__(self, script: Script, sampler: Sampler, likely_enough: float) -> None:
        """``likely_enough``: a line goes on while it is right with at least this chance; 0 = to the end."""
        self._script = script
        self._sampler = sampler
        self._likely_enough = likely_enough

    def propose(self, state: StreamState, count: int) -> Draft:
        """The tail where it begins a frame, then the drafter's own decisions, while the line is likely enough to be right so far; beside
        those it is least sure of, its second choice, if it may still propose more."""
        drafts = legal_prefix(self._script, state, state.tail[:count]) if state.script.due == 0 else []
        right = TAIL_RIGHT ** len(drafts)
        guesses = self._guess(state, drafts, count, right)
        line = [*drafts, *(guess.decision for guess in guesses)]
        rivals: list[tuple[float, int, int]] = []  # chance to be right, place in the line, decision
        for place, guess in enumerate(guesses, len(drafts)):
            this = chance(guess.margin)
            if (worth := right * (1 - this) * RIVAL_RIGHT) >= RIVAL_WORTH:
                rivals.append((worth, place, guess.second))
            right *= this
        rivals = sorted(rivals, reverse=True)[: count - len(line)]
        decisions = [*line, *(decision for _, _, decision in rivals)]
        return Draft(decisions, [*range(-1, len(line) - 1), *(place - 1 for _, place, _ in rivals)])

    def _guess(self, state: StreamState, drafts: list[int], count: int, right: float) -> list[Guess]:
        """Own decisions behind ``drafts``, which are right with chance ``right``, up to ``count`` in all."""
        guesses: list[Guess] = []

        def choose(logits: Row, at: StreamState) -> int:
            nonlocal right
            guess = Guess(*self._sampler.choose_two(logits, self._script.allowed(at.script), at.inputs, at.position))
            guesses.append(guess)
            right *= chance(guess.margin)
            return guess.decision

        self._extend(state, list(drafts), count, choose, lambda: right >= self._likely_enough)
        return guesses

    def propose_with_odds(self, state: StreamState, count: int) -> list[tuple[int, Distribution]]:
        """Its own decisions under noise of their own, each with the probabilities it was drawn from."""
        uniforms = self._sampler.uniform.of_round(Use.DRAFT, state.position, count)
        odds: list[Distribution] = []

        def choose(logits: Row, at: StreamState) -> int:
            q = self._sampler.distribution(logits, self._script.allowed(at.script), at.inputs)
            odds.append(q)
            option = draw(q, uniforms[at.position - state.position])
            return self._sampler.vocabulary.decision(option, at.script.due)

        return list(zip(self._extend(state, [], count, choose, lambda: True), odds, strict=True))

    @abstractmethod
    def _extend(
        self,
        state: StreamState,
        drafts: list[int],
        count: int,
        choose: Callable[[Row, StreamState], int],
        worth_it: Callable[[], bool],
    ) -> list[int]:
        """``drafts`` and what ``choose`` makes of the logits after them, up to ``count`` in all and while ``worth_it``."""


class ModelDrafter(LineDrafter):
    """A small language model of the same stream. Its cache may lag behind: what it has not seen is fed before it drafts."""

    def __init__(
        self,
        model: ConditionedSource,
        script: Script,
        sampler: Sampler,
        *,
        tell: Callable[[Floats, int], Floats] | None = None,
        likely_enough: float = LIKELY_ENOUGH,
    ) -> None:
        """``tell``: ``SpeechLm.told`` of a model that is told the states in which the target made the decisions of the last round."""
        super().__init__(script, sampler, likely_enough)
        self.name = "model" if tell is None else "feature"
        self._tell = tell
        self._model = model
        self._base = 0  # stream position of the cache's first
        self._valid = 0  # stream position up to which the cache surely holds committed inputs
        self._fed: list[StreamInput] = []  # what it holds from ``_valid`` on; drafts among it may have been rejected

    def _guess(self, state: StreamState, drafts: list[int], count: int, right: float) -> list[Guess]:
        """See ``LineDrafter``: the same in one compiled call, where the model's passes are compiled."""
        if not self._model.compiled:
            return super()._guess(state, drafts, count, right)
        script, at = self._script, state
        inputs = list[StreamInput]()
        for draft in drafts:
            at = at.after(script, draft)
            inputs.append(at.inputs[-1])
        most, first = count - len(drafts), at.script.phoneme
        if most <= 0 or right < self._likely_enough or script.waits(at.script):
            return []
        inputs = self._catch_up(state) + inputs
        start = at.position + 1 - len(inputs)
        told = self._told(state, len(inputs) - len(drafts), count)
        if told is None:
            told = NOTHING_TOLD
        before = max(0, len(inputs) - MAX_ROWS)  # more than one pass takes
        if before:
            self._model.forward(inputs[:before], start - self._base, added=told[:before] if len(told) else None)
        recent = [each.token for each in at.inputs[-HISTORY:]]
        fed, pairs, margins = np.empty((most, 4), np.int64), np.empty((most, 2), np.int64), np.empty(most)
        made = self._model.follow(
            draft_line, inputs[before:], start + before - self._base, told[before:], script.vocabulary.codebooks,
            script.vocabulary.codebook_size, np.array(script.caps[first : first + most]), np.array(script.ends[first : first + most]),
            self._sampler.noise(at.position, most), np.array([NO_TOKEN] * (HISTORY - len(recent)) + recent),
            *self._sampler.filters, right, self._likely_enough, fed, pairs, margins,
        )  # fmt: skip
        self._feed([*inputs, *(StreamInput(*item) for item in fed[: made - 1].tolist())], start, state.position)
        if self._tell is not None:
            del self._fed[1:]  # they will be told more when they are committed
        made_pairs, made_margins = pairs[:made].tolist(), margins[:made].tolist()
        return [Guess(one, two, margin) for (one, two), margin in zip(made_pairs, made_margins, strict=True)]

    def _feed(self, new: list[StreamInput], start: int, position: int) -> None:
        """The cache holds ``new`` at stream positions ``start`` and after, nothing behind; those up to ``position`` are committed."""
        self._fed[start - self._valid :] = new
        if start <= position:  # the committed inputs among them are never asked about again
            self._fed, self._valid = self._fed[position - self._valid :], position

    def _extend(
        self,
        state: StreamState,
        drafts: list[int],
        count: int,
        choose: Callable[[Row, StreamState], int],
        worth_it: Callable[[], bool],
    ) -> list[int]:
        """See ``LineDrafter``; one pass a decision."""
        script = self._script
        states = [state]
        for draft in drafts:
            states.append(states[-1].after(script, draft))
        new = self._catch_up(state)
        first = state.position + 1 - len(new)
        told = self._told(state, len(new), count)
        new += [each.inputs[-1] for each in states[1:]]
        while len(drafts) < count and worth_it() and not script.waits(states[-1].script):
            at = states[-1]
            start = at.position + 1 - len(new)
            added = None if told is None else told[start - first : start - first + len(new)]
            logits = self._model.forward(new, start - self._base, added=added)[-1]
            self._feed(new, start, state.position)
            drafts.append(choose(logits, at))
            states.append(at.after(script, drafts[-1]))
            new = [states[-1].inputs[-1]]
        if self._tell is not None:
            del self._fed[1:]  # they will be told more when they are committed
        return drafts

    def _told(self, state: StreamState, inputs: int, later: int) -> Floats | None:
        """What is added to the last ``inputs`` committed inputs and ``later`` more: [inputs + later, width]."""
        if self._tell is None or state.features is None:
            return None
        told = self._tell(state.features[-inputs:], later)
        unknown = inputs + later - len(told)
        return np.concatenate([np.zeros((unknown, told.shape[1]), np.float32), told]) if unknown else told

    def _catch_up(self, state: StreamState) -> list[StreamInput]:
        """The committed inputs the cache does not hold yet, up to the pending one; at least that one."""
        first = state.position + 1 - len(state.inputs)  # position of the oldest input the state remembers
        if self._valid < first:  # too far behind: start anew; positions are relative
            self._base = self._valid = first
            self._fed = []
        start = self._valid
        for fed in self._fed:
            if start >= state.position or fed != state.inputs[start - first]:
                break
            start += 1
        self._valid, self._fed = start, []
        return list(state.inputs[start - first :])
