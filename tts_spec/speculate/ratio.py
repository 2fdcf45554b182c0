"""The round of ratio mode: the rejection rule of Leviathan et al. 2023 (algorithm 1) with residual resampling.

Same distribution as plain decoding, not the same samples; the output depends on the drafter, on gamma and on when the text arrived. Exact
because p and q are the deployed distributions, both in float64 from ``Sampler.distribution``, drafts are drawn from that very q, and noise
of drafts, acceptance and residual is never shared. How many are drafted may depend on the drafts before, never on the draft itself.
Like ``round``, a pure function of its state. Knows decisions; knows no text, no audio and no other stream.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from models.lm_stream import LogitSource
from tts_spec.speculate.noise import Use
from tts_spec.speculate.round import Round, StreamState
from tts_spec.speculate.sampling import Distribution, Sampler, draw
from tts_spec.speculate.script import Script


class OddsDrafter(Protocol):
    """A drafter that can say what its drafts were drawn from."""

    name: str

    def propose_with_odds(self, state: StreamState, count: int) -> list[tuple[int, Distribution]]:
        """At most ``count`` decisions for ``state.position`` and after, each drawn from the probabilities beside it with noise of
        ``Use.DRAFT`` alone. Whether there is a next one must not depend on that one."""


def ratio_round(
    target: LogitSource, drafter: OddsDrafter, script: Script, sampler: Sampler, state: StreamState, gamma: int
) -> Round:
    """Commit one to ``gamma + 1`` decisions. ``state`` must not be waiting for a phoneme; its tail is not used."""
    # Draft.
    drafts = drafter.propose_with_odds(state, gamma)

    # Verify: one target pass over the pending input and every drafted one that has an input yet.
    states = [state]
    for draft, _ in drafts:
        states.append(states[-1].after(script, draft))
    last = states[-1]
    if script.waits(last.script):
        states.pop()
    logits = target.forward([each.inputs[-1] for each in states], start=state.position)
    odds = [
        sampler.distribution(row, script.allowed(each.script), each.inputs)
        for row, each in zip(logits, states, strict=True)
    ]

    # Accept: each draft with chance min(1, p / q), up to the first that is not. Strictly below, so that p = 0 never passes.
    uniforms = sampler.uniform.of_round(Use.ACCEPT, state.position, len(drafts))
    accepted = 0
    for (draft, q), p, uniform in zip(drafts, odds, uniforms, strict=False):
        option = script.vocabulary.option(draft)
        if not uniform * q[option] < p[option]:
            break
        accepted += 1
    decisions = tuple(draft for draft, _ in drafts[:accepted])
    if accepted == len(states):  # the text ends with an accepted draft: nothing follows yet
        return Round(last, decisions, len(drafts), len(drafts), accepted)

    # Commit, and what the target has over the drafter at the rejected draft; after the last draft, all it has.
    weights = odds[accepted]
    if accepted < len(drafts):
        weights = np.maximum(weights - drafts[accepted][1], 0.0)
    uniform = sampler.uniform.of_round(Use.RESIDUAL, state.position, len(states))[accepted]
    decision = script.vocabulary.decision(draw(weights, uniform), states[accepted].script.due)
    after = states[accepted].after(script, decision)._replace(features=target.features[: accepted + 1])
    return Round(after, (*decisions, decision), len(drafts), len(drafts), accepted)
