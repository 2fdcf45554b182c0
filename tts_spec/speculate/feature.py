"""Drafts from the target's own hidden states: a small recurrent network, no cache, no attention (``models.feature_head``).

It begins where the target made its last decision and takes in its own drafts, each chosen under the target's noise. Knows the stream's
state, the target's input vectors and the network; asks nothing of the target.
"""

from __future__ import annotations

from collections.abc import Callable

from models.kernels import Floats
from models.lm_stream import StreamInput
from models.packed import PackedFeatureHead
from tts_spec.speculate.noise import Use
from tts_spec.speculate.round import Draft, StreamState
from tts_spec.speculate.sampling import Distribution, Sampler, draw
from tts_spec.speculate.script import Script


class FeatureDrafter:
    """See the module. ``vector`` gives the target's input vector [width] of an input."""

    name = "feature"

    def __init__(
        self, head: PackedFeatureHead, vector: Callable[[StreamInput], Floats], script: Script, sampler: Sampler
    ) -> None:
        self._head = head
        self._vector = vector
        self._script = script
        self._sampler = sampler

    def propose(self, state: StreamState, count: int) -> Draft:
        """A line; nothing before the target's first pass."""

        def choose(logits: Floats, at: StreamState) -> int:
            return self._sampler.choose(logits, self._script.allowed(at.script), at.inputs, at.position)

        return Draft.line(self._unroll(state, count, choose))

    def propose_with_odds(self, state: StreamState, count: int) -> list[tuple[int, Distribution]]:
        """The same in ratio mode, with noise of its own."""
        uniforms = self._sampler.uniform.of_round(Use.DRAFT, state.position, count)
        odds: list[Distribution] = []

        def choose(logits: Floats, at: StreamState) -> int:
            odds.append(self._sampler.distribution(logits, self._script.allowed(at.script), at.inputs))
            option = draw(odds[-1], uniforms[len(odds) - 1])
            return self._script.vocabulary.decision(option, at.script.due)

        return list(zip(self._unroll(state, count, choose), odds, strict=True))

    def _unroll(self, state: StreamState, count: int, choose: Callable[[Floats, StreamState], int]) -> list[int]:
        drafts: list[int] = []
        if state.features is None or not count:
            return drafts
        at = state
        hidden = self._head.begin(state.features)
        while len(drafts) < count and not self._script.waits(at.script):
            logits = self._head.advance(hidden, self._vector(at.inputs[-1]), at.script.due)
            drafts.append(choose(logits, at))
            at = at.after(self._script, drafts[-1])
        return drafts
