"""Drafts without a trained part: the target's own samples past the last mismatch (Jacobi under fixed noise), and n-grams.

Noise is keyed by position, so what the target sampled at a position behind a wrong token tends to come again behind the right one
(Santilli et al. 2023, Song et al. 2021, with noise that stays). Where the tail ends, the decision that last followed the same two decisions
in this stream is taken (lookahead decoding's n-gram pool, Fu et al. 2024, over the trajectory itself), else the token of the same codebook
one frame ago. Knows decisions; knows no model.
"""

from __future__ import annotations

import numpy as np

from tts_spec.speculate.round import Draft, StreamState, legal_prefix
from tts_spec.speculate.sampling import Distribution
from tts_spec.speculate.script import Script


class LookaheadDrafter:
    """See the module."""

    name = "lookahead"

    def __init__(self, script: Script) -> None:
        self._script = script

    def propose(self, state: StreamState, count: int) -> Draft:
        """The tail, then decisions seen before."""
        script = self._script
        drafts = legal_prefix(script, state, state.tail[:count])
        at = state
        for draft in drafts:
            at = at.after(script, draft)
        while len(drafts) < count and not script.waits(at.script):
            guess = self._seen_before(at)
            if guess is None or not script.is_legal(at.script, guess):
                break
            drafts.append(guess)
            at = at.after(script, guess)
        return Draft.line(drafts)

    def propose_with_odds(self, state: StreamState, count: int) -> list[tuple[int, Distribution]]:
        """The same in ratio mode: each guess drawn from a distribution that has nothing else."""
        made = []
        for guess in self.propose(state, count).decisions:
            weights: Distribution = np.zeros(self._script.vocabulary.codebook_size + 2)
            weights[self._script.vocabulary.option(guess)] = 1.0
            made.append((guess, weights))
        return made

    def _seen_before(self, at: StreamState) -> int | None:
        """What followed the last two tokens when they last came, else the token of the due codebook one frame ago; None without one."""
        tokens = [item.token for item in at.inputs]
        for first in range(len(tokens) - 3, 0, -1):
            if tokens[first - 1 : first + 1] == tokens[-2:] and tokens[first + 1] >= 0:
                return tokens[first + 1]
        size = self._script.vocabulary.codebook_size
        for token in reversed(tokens):
            if token >= 0 and token // size == at.script.due:
                return token
        return None
