"""One speculative round: draft, verify, accept, commit (Leviathan et al. 2023, with acceptance by shared Gumbel noise, Daliri et al. 2024).

The round is a pure function of its ``StreamState``: the caches of target and drafter are scratch whose valid length is
``state.position``, so the same state gives the same round. Knows decisions; knows no text, no audio and no other stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from models.lm_stream import LogitSource, StreamInput
from models.speech_lm import NO_TOKEN
from tts_spec.speculate.sampling import HISTORY, Sampler
from tts_spec.speculate.script import Script, ScriptState

FIRST_INPUT = StreamInput(NO_TOKEN, 0, 0, 0)
FIRST_STATE = ScriptState()


@dataclass(frozen=True, slots=True)
class StreamState:
    """Everything committed that the next round depends on."""

    position: int = 0  # decisions committed
    script: ScriptState = FIRST_STATE
    inputs: tuple[StreamInput, ...] = (FIRST_INPUT,)  # the last HISTORY inputs, the pending one at ``position`` last
    tail: tuple[int, ...] = ()  # the target's own samples past the last mismatch: drafts for ``position`` and after

    def after(self, script: Script, decision: int) -> StreamState:
        """The state once ``decision`` is committed; its tail is empty."""
        token = decision if decision < script.vocabulary.advance else NO_TOKEN
        now = script.after(self.script, decision)
        pending = StreamInput(token, now.phoneme, now.frames, now.due)
        return StreamState(self.position + 1, now, (*self.inputs[1 - HISTORY :], pending))


class Drafter(Protocol):
    """Guesses the target's next decisions. Owns its cache; told of nothing: all it may use is in the state."""

    name: str

    def propose(self, state: StreamState, count: int) -> list[int]:
        """At most ``count`` decisions for ``state.position`` and after, each legal under the script given those before it."""


class Round(NamedTuple):
    """What a round did."""

    state: StreamState
    decisions: tuple[int, ...]  # committed, in order; the last one is the target's own
    drafted: int
    accepted: int


def speculative_round(
    target: LogitSource, drafter: Drafter, script: Script, sampler: Sampler, state: StreamState, gamma: int
) -> Round:
    """Commit one to ``gamma + 1`` decisions. ``state`` must not be waiting for a phoneme."""
    # Draft.
    drafts = drafter.propose(state, gamma)

    # Verify: one target pass over the pending input and every drafted one that has an input yet.
    states = [state]
    for draft in drafts:
        states.append(states[-1].after(script, draft))
    if script.waits(states[-1].script):
        states.pop()
    logits = target.forward([each.inputs[-1] for each in states], start=state.position)
    samples = [
        sampler.choose(row, script.allowed(each.script), each.inputs, each.position)
        for row, each in zip(logits, states, strict=True)
    ]

    # Accept: drafts that equal the target's decision, up to the first that does not; that decision is the target's own.
    accepted = 0
    while accepted < min(len(drafts), len(samples) - 1) and drafts[accepted] == samples[accepted]:
        accepted += 1
    decisions = samples[: accepted + 1]

    # Commit. The samples past a mismatch are good drafts for the same positions, for the noise there stays the same.
    after = replace(states[accepted].after(script, decisions[-1]), tail=tuple(samples[accepted + 1 :]))
    return Round(
        after, tuple(decisions), len(drafts), accepted + int(drafts[accepted : accepted + 1] == decisions[-1:])
    )


def legal_prefix(script: Script, state: StreamState, decisions: Sequence[int]) -> list[int]:
    """The longest prefix of ``decisions`` that is legal from ``state`` on."""
    legal: list[int] = []
    at = state.script
    for decision in decisions:
        if not script.is_legal(at, decision):
            break
        legal.append(decision)
        at = script.after(at, decision)
    return legal
