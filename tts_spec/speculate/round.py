"""One speculative round: draft, verify, accept, commit (Leviathan et al. 2023, with acceptance by shared Gumbel noise, Daliri et al. 2024).

The round is a pure function of its ``StreamState``: the caches of target and drafter are scratch whose valid length is
``state.position``, so the same state gives the same round. Knows decisions; knows no text, no audio and no other stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from models.lm_stream import LogitSource, StreamInput
from models.products import Floats
from models.speech_lm import NO_TOKEN
from tts_spec.speculate.sampling import HISTORY, Sampler
from tts_spec.speculate.script import Script, ScriptState

FIRST_INPUT = StreamInput(NO_TOKEN, 0, 0, 0)
FIRST_STATE = ScriptState()


class StreamState(NamedTuple):
    """Everything committed that the next round depends on."""

    position: int = 0  # decisions committed
    script: ScriptState = FIRST_STATE
    inputs: tuple[StreamInput, ...] = (FIRST_INPUT,)  # the last HISTORY inputs, the pending one at ``position`` last
    tail: tuple[int, ...] = ()  # the target's own samples past the last mismatch: drafts for ``position`` and after
    features: Floats | None = None  # ``LogitSource.features`` where the decisions of the last round were made

    def after(self, script: Script, decision: int) -> StreamState:
        """The state once ``decision`` is committed; it has neither tail nor features."""
        token = decision if decision < script.vocabulary.advance else NO_TOKEN
        now = script.after(self.script, decision)
        pending = StreamInput(token, now.phoneme, now.frames, now.due)
        return StreamState(self.position + 1, now, (*self.inputs[1 - HISTORY :], pending))


class Draft(NamedTuple):
    """Guesses of the next decisions as a tree: ``parents[i]`` is the index of the guess before guess i, -1 for the first of a path.

    A guess comes after its parent; the guesses behind one parent differ.
    """

    decisions: Sequence[int] = ()
    parents: Sequence[int] = ()

    @classmethod
    def line(cls, decisions: Sequence[int]) -> Draft:
        """Guesses one after another."""
        return cls(decisions, range(-1, len(decisions) - 1))


class Drafter(Protocol):
    """Guesses the target's next decisions. Owns its cache; told of nothing: all it may use is in the state."""

    name: str

    def propose(self, state: StreamState, count: int) -> Draft:
        """At most ``count`` guesses for ``state.position`` and after, each legal under the script given those before it."""


class Round(NamedTuple):
    """What a round did."""

    state: StreamState
    decisions: tuple[int, ...]  # committed, in order; the last one is the target's own
    drafted: int  # guesses the target checked, those of all branches
    longest: int  # guesses of the longest branch
    accepted: int  # decisions, from the first on, that had been guessed


def speculative_round(
    target: LogitSource, drafter: Drafter, script: Script, sampler: Sampler, state: StreamState, gamma: int
) -> Round:
    """Commit one to ``gamma + 1`` decisions. ``state`` must not be waiting for a phoneme."""
    # Draft. Node 0 is the pending input, node i the i-th guess.
    draft = drafter.propose(state, gamma)
    nodes, children = [state], [list[int]()]
    for guess, parent in zip(draft.decisions, draft.parents, strict=True):
        children[parent + 1].append(len(nodes))
        children.append([])
        nodes.append(nodes[parent + 1].after(script, guess))

    # Verify: one target pass over every node that has an input; one that waits for a phoneme has none, and no guess behind it.
    fed = [node for node, each in enumerate(nodes) if not script.waits(each.script)]
    rows = {node: row for row, node in enumerate(fed)}
    parents = [-1, *(rows[draft.parents[node - 1] + 1] for node in fed[1:])]
    is_line = parents == list(range(-1, len(fed) - 1))
    inputs = [nodes[node].inputs[-1] for node in fed]
    logits = target.forward(inputs, state.position, None if is_line else parents)

    def choose(node: int) -> int:
        at = nodes[node]
        return sampler.choose(logits[rows[node]], script.allowed(at.script), at.inputs, at.position)

    # Accept: from guess to guess as long as one equals the target's decision; the first that none equals is the target's own.
    path, decisions = [0], [choose(0)]
    while right := [child for child in children[path[-1]] if draft.decisions[child - 1] == decisions[-1]]:
        path += right
        if right[0] not in rows:
            break
        decisions.append(choose(right[0]))

    # Commit. What the target makes of the first wrong line is a good draft for the same positions, for the noise there stays the same.
    last, tail, wrong = nodes[path[len(decisions) - 1]], list[int](), [] if right else children[path[-1]]
    while wrong and wrong[0] in rows:
        tail.append(choose(wrong[0]))
        wrong = children[wrong[0]]
    kept = [rows[node] for node in path[: len(decisions)]]
    if not is_line:
        target.keep(state.position, kept)
    after = last.after(script, decisions[-1])._replace(tail=tuple(tail), features=target.features[kept])
    longest = max(each.position for each in nodes) - state.position
    return Round(after, tuple(decisions), len(draft.decisions), longest, len(path) - 1)


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
