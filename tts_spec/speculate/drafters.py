"""Drafters: who guesses the next decisions. A wrong guess costs time, never changes the output.

Knows the stream's state and a small model; knows nothing of the target.
"""

from __future__ import annotations

from models.lm_stream import LmStream, StreamInput
from tts_spec.speculate.round import StreamState, legal_prefix
from tts_spec.speculate.sampling import Sampler
from tts_spec.speculate.script import Script


class NoDrafter:
    """Plain autoregressive decoding."""

    name = "none"

    def propose(self, state: StreamState, count: int) -> list[int]:
        """Nothing."""
        return []


class ModelDrafter:
    """A small language model of the same stream, under the target's own noise, that extends the recycled tail.

    The tail (the target's samples past the last mismatch) is taken as it is while legal; the model only adds what is missing, one pass a
    decision. Its cache may lag behind the stream: what it has not seen is fed before it drafts.
    """

    name = "model"

    def __init__(self, model: LmStream, script: Script, sampler: Sampler) -> None:
        self._model = model
        self._script = script
        self._sampler = sampler
        self._base = 0  # stream position of the cache's first
        self._valid = 0  # stream position up to which the cache surely holds committed inputs
        self._fed: list[StreamInput] = []  # what it holds from ``_valid`` on; drafts among it may have been rejected

    def propose(self, state: StreamState, count: int) -> list[int]:
        """The tail, then the model's own decisions."""
        script = self._script
        drafts = legal_prefix(script, state, state.tail[:count])
        states = [state]
        for draft in drafts:
            states.append(states[-1].after(script, draft))
        new = self._catch_up(state) + [each.inputs[-1] for each in states[1:]]
        while len(drafts) < count and not script.waits(states[-1].script):
            at = states[-1]
            start = at.position + 1 - len(new)
            logits = self._model.forward(new, start - self._base)[-1]
            self._fed[start - self._valid :] = new
            draft = self._sampler.choose(logits, script.allowed(at.script), at.inputs, at.position)
            drafts.append(draft)
            states.append(at.after(script, draft))
            new = [states[-1].inputs[-1]]
        return drafts

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
