"""The model drafter keeps its cache in step with the stream, however it is called."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from models.lm_stream import LmStream, Logits, StreamInput
from tests.speculate.streams import VOCABULARY, WINDOW, lm_stream, random_text, run, small_lm
from tts_spec.speculate.drafters import ModelDrafter, NoDrafter
from tts_spec.speculate.round import Drafter, StreamState, legal_prefix, speculative_round
from tts_spec.speculate.sampling import HISTORY, Sampler, SamplingOptions
from tts_spec.speculate.script import Script


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_with_the_target_as_its_model_it_is_always_right(temperature: float) -> None:
    """A draft that is not accepted would mean that drafter and target disagree on the state: the canary for state bugs."""
    text = random_text(random.Random(1), 16)
    options = SamplingOptions(temperature, top_p=0.95, repetition_penalty=1.3)
    for gamma in (1, 4, 15):

        def itself(script: Script, sampler: Sampler, small: LmStream, target: LmStream) -> Drafter:
            stream = lm_stream(small_lm())
            stream.extend(text.windows)
            return ModelDrafter(stream, script, sampler, likely_enough=0.0)

        outcome = run(text, itself, gamma, options, seed=2)
        assert sum(done.drafted for done in outcome.rounds) > 100
        assert outcome.acceptance > 0.99


@pytest.mark.parametrize("skipped", [1, 10, HISTORY - 1, HISTORY, HISTORY + 1, 3 * HISTORY])
def test_it_recovers_after_rounds_without_it(skipped: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers of this window see 63 inputs back, so the remembered 64 suffice to be right again at once."""
    text = random_text(random.Random(2), 24)
    options = SamplingOptions(0.8)
    target, same = lm_stream(small_lm()), lm_stream(small_lm())
    script, sampler = Script.empty(VOCABULARY), Sampler(options, VOCABULARY, 7)
    text.append_to(script, (target, same), len(text.caps))
    drafter = ModelDrafter(same, script, sampler, likely_enough=0.0)
    state = StreamState()
    drafted = accepted = 0
    fed: list[int] = []
    forward, follow = same.forward, same.follow

    def counted(inputs: Sequence[StreamInput], *rest: Any, **named: Any) -> Logits:
        fed.append(len(inputs))
        return forward(inputs, *rest, **named)

    def counted_line(kernel: Callable[..., int], inputs: Sequence[StreamInput], *rest: Any) -> int:
        fed.append(len(inputs))
        return follow(kernel, inputs, *rest)

    monkeypatch.setattr(same, "forward", counted)
    monkeypatch.setattr(same, "follow", counted_line)
    while not script.waits(state.script):
        for number in range(3):  # with it
            if not script.waits(state.script):
                fed.clear()
                done = speculative_round(target, drafter, script, sampler, state, 4)
                state, drafted, accepted = done.state, drafted + done.drafted, accepted + done.accepted
                assert number == 0 or max(fed) <= 6  # it has caught up: only what was decided since
        until = state.position + skipped
        while state.position < until and not script.waits(state.script):  # without it
            state = speculative_round(target, NoDrafter(), script, sampler, state, 0).state
    assert drafted >= 20
    assert accepted > 0.99 * drafted
    assert state.position > 5 * WINDOW


def test_it_keeps_the_tail_and_extends_it() -> None:
    text = random_text(random.Random(3), 20)
    small, target = lm_stream(small_lm(width=32, layers=1, seed=2)), lm_stream(small_lm())
    script, sampler = Script.empty(VOCABULARY), Sampler(SamplingOptions(1.0), VOCABULARY, 7)
    text.append_to(script, (target, small), len(text.caps))
    drafter = ModelDrafter(small, script, sampler, likely_enough=0.0)
    state = StreamState()
    extended = 0
    while not script.waits(state.script):
        drafts = drafter.propose(state, 6).decisions
        tail = legal_prefix(script, state, state.tail[:6])  # a wrong draft may have led to another codebook
        if state.script.due:
            tail = []  # behind a wrong token of the same frame
        assert drafts[: len(tail)] == tail
        assert drafter.propose(state, len(tail)).decisions == tail  # enough tail: no pass of the model is needed
        extended += bool(tail) and len(drafts) > len(tail)
        state = speculative_round(target, drafter, script, sampler, state, 6).state
    assert extended > 20


def test_it_proposes_nothing_past_the_known_text() -> None:
    text = random_text(random.Random(4), 1, phonemes=1, cap=1)
    small = lm_stream(small_lm(width=32, layers=1, seed=2))
    script, sampler = Script.empty(VOCABULARY), Sampler(SamplingOptions(1.0), VOCABULARY, 7)
    text.append_to(script, (small,), 1)
    draft = ModelDrafter(small, script, sampler, likely_enough=0.0).propose(StreamState(), 15)
    assert list(draft.parents[:5]) == [-1, 0, 1, 2, 3]  # one frame and END, then second choices beside them
    assert draft.decisions[4] == VOCABULARY.end
    assert all(parent < 4 for parent in draft.parents[5:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tell", [False, True])
@pytest.mark.parametrize("options", [SamplingOptions(0.7), SamplingOptions(1.0, 20, 0.9, 1.3), SamplingOptions(0.0)])
def test_a_compiled_line_is_what_passes_one_by_one_give(
    options: SamplingOptions, tell: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a whole text: tails, frame boundaries, phonemes that end, rivals, text that is not known yet; bit by bit, margins included."""
    text = random_text(random.Random(5), 24)
    target = lm_stream(small_lm(dtype=dtype))
    models = [lm_stream(small_lm(width=32, layers=1, seed=2, conditioned=True, dtype=dtype)) for _ in range(2)]
    script, sampler = Script.empty(VOCABULARY), Sampler(options, VOCABULARY, 7)
    compiled, stepwise = (
        ModelDrafter(model, script, sampler, tell=model.told if tell else None, likely_enough=0.2) for model in models
    )
    rng, state, lengths = random.Random(6), StreamState(), set[int]()
    while len(script) < len(text.caps) or not script.waits(state.script):
        if script.waits(state.script):
            text.append_to(script, (target, *models), min(len(text.caps), len(script) + rng.randint(1, 3)))
        gamma = rng.randint(1, 15)
        for _ in range(1 if rng.random() < 0.9 else 40):  # now and then it falls far behind
            if script.waits(state.script):
                break
            state = speculative_round(target, NoDrafter(), script, sampler, state, 0).state
        if script.waits(state.script):
            continue
        with monkeypatch.context() as patch:
            patch.setattr(LmStream, "compiled", False)
            expected = stepwise.propose(state, gamma)
        made = compiled.propose(state, gamma)
        assert (list(made.decisions), list(made.parents)) == (list(expected.decisions), list(expected.parents))
        lengths.add(len(made.decisions))
        state = speculative_round(target, compiled, script, sampler, state, gamma).state
    assert len(lengths) > 4
