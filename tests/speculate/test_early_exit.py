"""The target drafts for itself: with an exit that loses nothing it is always right, and lines end where it is not sure."""

from __future__ import annotations

import copy
import functools
import random

import pytest
import torch

from models.exit_head import ExitConfig, ExitHead, PackedExit
from models.exit_stream import ExitBatch
from models.lm_stream import LmStream
from models.speech_lm import SpeechLm
from tests.speculate.streams import exit_drafter, plain, random_text, run, small_lm
from tts_spec.speculate.early_exit import EarlyExitDrafter
from tts_spec.speculate.ratio import ratio_round
from tts_spec.speculate.round import Drafter
from tts_spec.speculate.sampling import Sampler, SamplingOptions
from tts_spec.speculate.script import Script

LAYERS = 3


@functools.cache
def idle_after(layers: int) -> SpeechLm:
    """A target whose layers after the first ``layers`` add nothing."""
    lm = copy.deepcopy(small_lm(layers=LAYERS, seed=7))
    with torch.no_grad():
        for block in lm.transformer.layers[layers:]:
            block.attention.out.weight.zero_()
            block.down.weight.zero_()
    return lm


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_an_exit_that_loses_nothing_is_always_right(layers: int, temperature: float) -> None:
    """A draft that is not accepted would mean that drafting and verifying see another cache or position."""
    target = idle_after(layers)

    def lossless(script: Script, sampler: Sampler, small: LmStream, stream: LmStream) -> Drafter:
        head = ExitHead(ExitConfig(64, layers, hidden=8))  # its block adds nothing before training
        leaves = ExitBatch(stream.batch, PackedExit(head, target)).open(stream)
        return EarlyExitDrafter(leaves, script, sampler, likely_enough=0.0)

    text = random_text(random.Random(1), 12)
    options = SamplingOptions(temperature, top_p=0.95, repetition_penalty=1.3)
    for gamma in (1, 4, 15):
        outcome = run(text, lossless, gamma, options, 3, target=target)
        assert outcome.decisions == plain(text, options, 3, target).decisions
        assert sum(done.drafted for done in outcome.rounds) > 100
        assert all(done.accepted == done.longest for done in outcome.rounds)


def test_it_goes_on_from_the_tail() -> None:
    """The first pass takes the tail with the pending input, so that what follows sees it."""
    text, options = random_text(random.Random(3), 20), SamplingOptions(0.9)
    after_tail = 0

    class Told(EarlyExitDrafter):
        def _extend(self, state, drafts, count, choose, worth_it):  # type: ignore[no-untyped-def]
            nonlocal after_tail
            tail = len(drafts)
            made = super()._extend(state, drafts, count, choose, worth_it)
            after_tail += 0 < tail < len(made)
            begun = self._exit._stream.begun
            if len(made) > tail:  # all of the line but its last was run
                assert begun is not None
                assert begun.start == state.position
                assert len(begun.inputs) == len(made)
            return made

    def told(script: Script, sampler: Sampler, small: LmStream, target: LmStream) -> Drafter:
        made = exit_drafter(script, sampler, small, target)
        made.__class__ = Told
        return made

    outcome = run(text, told, 7, options, 5)
    assert outcome.decisions == plain(text, options, 5).decisions
    assert after_tail > 20


def test_at_no_temperature_ratio_mode_says_what_plain_decoding_says() -> None:
    text, options = random_text(random.Random(7), 12), SamplingOptions(0.0, repetition_penalty=1.6)
    expected = plain(text, options, 3).decisions
    outcome = run(text, exit_drafter, 7, options, 3, round_function=ratio_round)  # type: ignore[arg-type]
    assert outcome.decisions == expected
    assert sum(done.drafted for done in outcome.rounds) > 100
