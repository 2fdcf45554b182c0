"""A tree of guesses from the target's last hidden state (Medusa, Cai et al. 2024), under the target's own noise.

The candidates of a position are the best two noisy scores, so the target's own token is accepted if it is among them: exact, not "typical"
acceptance. The recycled tail competes with them. Has no cache. Knows decisions; knows of the target its last hidden state alone.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from models.medusa import MedusaGuesses, PackedMedusa
from tts_spec.speculate.drafters import RIVAL_RIGHT, TAIL_RIGHT
from tts_spec.speculate.line import chance
from tts_spec.speculate.noise import Use
from tts_spec.speculate.round import Draft, StreamState
from tts_spec.speculate.sampling import Distribution, Sampler, draw
from tts_spec.speculate.script import Script

WORTH = 0.2  # chance at which a guess is worth its row; no pass of a drafter comes with it


class _Option(NamedTuple):
    """A guess that may come behind a node."""

    right: float  # chance, given that the node is right
    decision: int
    tail: tuple[int, ...]  # what is left of the recycled tail behind it


class MedusaDrafter:
    """See the module."""

    name = "medusa"

    def __init__(self, medusa: PackedMedusa, script: Script, sampler: Sampler) -> None:
        self._medusa = medusa
        self._script = script
        self._sampler = sampler

    def propose(self, state: StreamState, count: int) -> Draft:
        """The likeliest paths, best first, as long as they are right with a chance of at least ``WORTH``."""
        decisions: list[int] = []
        parents: list[int] = []
        guesses = self._guesses(state)
        made = 0
        waiting: list[tuple[float, int, int, StreamState, _Option]] = []  # the likeliest first, of equals the oldest

        def expand(node: int, at: StreamState, right: float, tail: tuple[int, ...]) -> None:
            nonlocal made
            for option in self._options(guesses, at, at.position - state.position + 1, tail):
                if right * option.right >= WORTH:
                    heapq.heappush(waiting, (-right * option.right, made, node, at, option))
                    made += 1

        if count:
            # Behind a wrong token of the same frame the tail is worth less than the heads.
            expand(-1, state, 1.0, state.tail if state.script.due == 0 else ())
        while waiting:
            right, _, parent, at, option = heapq.heappop(waiting)
            decisions.append(option.decision)
            parents.append(parent)
            if len(decisions) == count:
                break
            expand(len(decisions) - 1, at.after(self._script, option.decision), -right, option.tail)
        return Draft(decisions, parents)

    def propose_with_odds(self, state: StreamState, count: int) -> list[tuple[int, Distribution]]:
        """A line of decisions under noise of their own, each with the probabilities it was drawn from."""
        guesses = self._guesses(state)
        if guesses is None:
            return []
        uniforms = self._sampler.uniform.of_round(Use.DRAFT, state.position, count)
        made: list[tuple[int, Distribution]] = []
        at = state
        while len(made) < min(count, len(guesses)) and not self._script.waits(at.script):
            logits = guesses.logits(len(made) + 1, at.script.due)
            odds = self._sampler.distribution(logits, self._script.allowed(at.script), at.inputs)
            option = draw(odds, uniforms[len(made)])
            made.append((self._sampler.vocabulary.decision(option, at.script.due), odds))
            at = at.after(self._script, made[-1][0])
        return made

    def _guesses(self, state: StreamState) -> MedusaGuesses | None:
        """None before the first decision."""
        return None if state.features is None else self._medusa.guesses(state.features[-1, -1])

    def _options(
        self, guesses: MedusaGuesses | None, at: StreamState, offset: int, tail: tuple[int, ...]
    ) -> list[_Option]:
        """What may follow at ``at``, ``offset`` positions behind the last decision."""
        script = self._script
        if script.waits(at.script):
            return []
        if tail and not script.is_legal(at.script, tail[0]):
            tail = ()
        if guesses is None or offset > len(guesses):
            return [_Option(TAIL_RIGHT, tail[0], tail[1:])] if tail else []
        logits = guesses.logits(offset, at.script.due)
        first, second, margin = self._sampler.choose_two(logits, script.allowed(at.script), at.inputs, at.position)
        right = chance(margin)
        if tail and tail[0] != first:
            return [_Option(TAIL_RIGHT, tail[0], tail[1:]), _Option((1 - TAIL_RIGHT) * right, first, ())]
        if tail:
            right = max(right, TAIL_RIGHT)
        return [_Option(right, first, tail[1:]), _Option((1 - right) * RIVAL_RIGHT, second, ())]
