"""Guesses from the last hidden state: of the right positions, a tree of the likeliest paths, by the heads as they are trained."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from models.lm_stream import LmStream
from models.medusa import MedusaConfig, MedusaHeads, PackedMedusa
from models.products import Floats
from tests.speculate.streams import (
    DRAFTERS,
    VOCABULARY,
    Outcome,
    medusa_drafter,
    plain,
    random_text,
    run,
    small_lm,
    small_medusa,
)
from tts_spec.speculate.medusa import WORTH, MedusaDrafter
from tts_spec.speculate.ratio import ratio_round
from tts_spec.speculate.round import Draft, Drafter, StreamState
from tts_spec.speculate.sampling import Sampler, SamplingOptions
from tts_spec.speculate.script import Script

OFFSETS = 6
SURE = 40.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_heads_are_those_that_are_trained(dtype: torch.dtype) -> None:
    target = small_lm(dtype=dtype)
    medusa = MedusaHeads(MedusaConfig(64, offsets=3)).to(dtype)
    torch.manual_seed(1)
    for weight in medusa.matrices:
        torch.nn.init.normal_(weight, std=0.2)
    hidden = 2 * torch.randn(64)
    guesses = PackedMedusa(medusa, target).guesses(hidden.numpy())
    assert len(guesses) == 3
    for offset, due in ((1, 0), (3, 2), (2, 3), (3, 0), (3, 2)):
        with torch.no_grad():
            expected = target.heads[due](medusa(hidden.to(dtype), offset)).float().numpy()
        got = guesses.logits(offset, due)
        assert got.shape == (VOCABULARY.codebook_size + 2,)
        np.testing.assert_allclose(got[: len(expected)], expected, atol=1e-4 if dtype == torch.float32 else 0.15)
        assert np.isneginf(got[len(expected) :]).all()


class Oracle:
    """Heads that know what follows every hidden state of a stream."""

    def __init__(self, known: Outcome, second: bool = False) -> None:
        """``second``: the right decision has the second score everywhere, a little below the first."""
        self._second = second
        self._decisions = known.decisions
        self._positions = {
            state.features[-1, -1].tobytes(): state.position for state in known.states if state.features is not None
        }

    def guesses(self, hidden: Floats) -> OracleGuesses:
        return OracleGuesses(self._decisions, self._positions[hidden.tobytes()], self._second)


class OracleGuesses:
    def __init__(self, decisions: list[int], position: int, second: bool) -> None:
        self._decisions = decisions
        self._position = position  # of the first guess
        self._second = second

    def __len__(self) -> int:
        return OFFSETS

    def logits(self, offset: int, due: int) -> Floats:
        assert 1 <= offset <= OFFSETS
        logits = np.zeros(VOCABULARY.codebook_size + 2, np.float32)
        at = self._position + offset - 1
        if at < len(self._decisions):
            option = VOCABULARY.option(self._decisions[at])
            if self._second:
                logits[(option + 1) % VOCABULARY.codebook_size] = SURE + 0.01
            logits[option] = SURE
        return logits


def with_oracle(known: Outcome, *, second: bool = False) -> Callable[..., Drafter]:
    def made(script: Script, sampler: Sampler, small: LmStream, target: LmStream) -> Drafter:
        return MedusaDrafter(Oracle(known, second), script, sampler)  # type: ignore[arg-type]

    return made


@pytest.mark.parametrize("gamma", [1, 4, 15])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_heads_that_know_what_follows_are_always_right(gamma: int, temperature: float) -> None:
    """So offset j is the j-th decision after those committed, drawn under the noise of its position."""
    text, options = random_text(random.Random(1), 10), SamplingOptions(temperature)
    known = plain(text, options, 3)
    outcome = run(text, with_oracle(known), gamma, options, 3)
    assert outcome.decisions == known.decisions
    for done in outcome.rounds[1:-1]:  # the first has no state to guess from
        assert done.accepted == done.longest == min(gamma, OFFSETS)


def test_a_close_second_stands_in_the_tree_too() -> None:
    text, options = random_text(random.Random(2), 10), SamplingOptions(0.0)
    known = plain(text, options, 3)
    outcome = run(text, with_oracle(known, second=True), 7, options, 3)
    assert outcome.decisions == known.decisions
    audio = [
        done
        for before, done in zip(outcome.states[1:-1], outcome.rounds[1:], strict=True)
        if before.script.due and not before.tail
    ]
    assert len(audio) > 20
    assert all(done.accepted >= 1 for done in audio)


def drafted(text_seed: int, gamma: int) -> list[tuple[StreamState, Draft]]:
    """What was proposed at every state of a stream."""
    made = []

    class Told(MedusaDrafter):
        def propose(self, state: StreamState, count: int) -> Draft:
            draft = super().propose(state, count)
            made.append((state, draft))
            return draft

    def maker(script: Script, sampler: Sampler, small: LmStream, target: LmStream) -> Drafter:
        return Told(small_medusa(target.batch.lm), script, sampler)

    run(random_text(random.Random(text_seed), 20), maker, gamma, SamplingOptions(0.7), 5)
    return made


def test_it_proposes_trees_whose_likeliest_path_comes_first() -> None:
    """A shorter proposal is the beginning of a longer one; branches share a parent; unlikely paths end."""
    long, short = drafted(3, 15), drafted(3, 3)
    by_position = {state.position: draft for state, draft in long}
    branched = 0
    for state, draft in short:
        if state.position in by_position and not state.tail:
            whole = by_position[state.position]
            if whole.decisions[:1] == draft.decisions[:1]:
                assert list(whole.parents[:3]) == list(draft.parents)
    for _, draft in long:
        branched += len(set(draft.parents)) < len(draft.parents)
        assert len(draft.decisions) <= 15
    assert branched > 20
    assert np.mean([len(draft.decisions) for _, draft in long]) < 1 / WORTH


def test_the_tail_competes_where_it_begins_a_frame() -> None:
    taken = other = inside = 0
    for state, draft in drafted(4, 7):
        if not state.tail or not draft.decisions:
            continue
        first = [guess for guess, parent in zip(draft.decisions, draft.parents, strict=True) if parent == -1]
        if state.script.due:
            inside += state.tail[0] not in first
        else:
            taken += state.tail[0] in first
            other += len(first) > 1
    assert taken > 10
    assert inside > 10


def test_ratio_rounds_know_the_states_of_what_they_committed() -> None:
    """As coupled rounds do, for drafters that are told of them."""
    text = random_text(random.Random(6), 10)
    for name in ("medusa", "feature"):
        outcome = run(text, DRAFTERS[name], 5, SamplingOptions(0.8), 4, round_function=ratio_round)  # type: ignore[arg-type]
        for done in outcome.rounds:
            features = done.state.features
            assert features is None or features.shape == (len(done.decisions), 2, 64)
        assert sum(done.drafted for done in outcome.rounds) > 100


def test_at_no_temperature_ratio_mode_says_what_plain_decoding_says() -> None:
    text, options = random_text(random.Random(7), 12), SamplingOptions(0.0, repetition_penalty=1.6)
    expected = plain(text, options, 3).decisions
    outcome = run(text, medusa_drafter, 7, options, 3, round_function=ratio_round)  # type: ignore[arg-type]
    assert outcome.decisions == expected
