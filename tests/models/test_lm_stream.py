"""A stream's logits are those the model is trained to give, and inputs, phonemes and errors are handled at the border."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from models.lm_stream import LmBatch, Logits, StreamInput
from models.slots import MAX_ROWS
from models.speech_lm import MAX_COUNT, NO_TOKEN, OFFSETS, SpeechLm, SpeechLmConfig
from models.training.lm_loss import hidden_states
from models.training.woven import Rows
from tests.speculate.streams import SYMBOLS, WINDOW, random_text, small_lm

SIZE, BOOKS = 32, 4


def woven(rng: random.Random, phonemes: int, longest: int = 4) -> list[StreamInput]:
    """Inputs of a random walk: every phoneme, then its frames."""
    inputs = []
    for phoneme in range(phonemes):
        inputs.append(StreamInput(NO_TOKEN, phoneme, 0, 0))
        for frame in range(1, rng.randint(1, longest) + 1):
            for book in range(BOOKS):
                token = book * SIZE + rng.randrange(SIZE)
                inputs.append(StreamInput(token, phoneme, frame, (book + 1) % BOOKS))
    return inputs


def training_logits(
    lm: SpeechLm, inputs: list[StreamInput], windows: list[list[int]], voice: int, speed: float
) -> list[torch.Tensor]:
    """Logits [options] of every position by the way training computes them."""

    def column(values: list[int]) -> torch.Tensor:
        return torch.tensor([values])

    rows = Rows(
        tokens=column([max(item.token, 0) for item in inputs]),
        is_phoneme=column([item.token == NO_TOKEN for item in inputs]),
        counts=column([item.frames for item in inputs]),
        phonemes=column([item.phoneme for item in inputs]),
        due=column([item.due for item in inputs]),
        decisions=column([0] * len(inputs)),
        leavable=column([0] * len(inputs)),
        windows=torch.tensor(windows),
        voices=torch.tensor([voice]),
        speeds=torch.full((1, len(inputs)), speed),
    )
    with torch.no_grad():
        hidden = hidden_states(lm, rows)[0]
        return [lm.heads.get_submodule(str(item.due))(row) for item, row in zip(inputs, hidden, strict=True)]


@pytest.mark.parametrize(("voice", "speed"), [(0, 1.0), (1, 0.7)])
def test_logits_are_those_of_training(voice: int, speed: float) -> None:
    rng = random.Random(1)
    lm = small_lm()
    text = random_text(rng, 8)
    inputs = woven(rng, len(text.windows))
    assert len(inputs) > 5 * WINDOW
    stream = LmBatch(lm, 1).open([float(i == voice) for i in range(2)], speed)
    stream.extend(text.windows)
    logits = stream.forward(inputs, 0)
    assert logits.dtype == np.float32
    assert logits.shape == (len(inputs), SIZE + 2)
    for got, item, expected in zip(
        logits, inputs, training_logits(lm, inputs, text.windows, voice, speed), strict=True
    ):
        np.testing.assert_allclose(got[: len(expected)], expected, atol=2e-5, rtol=0)
        assert len(expected) == SIZE + (2 if item.due == 0 else 0)
        assert np.isneginf(got[len(expected) :]).all()  # such a codebook has no ADVANCE and no END


def test_a_long_phoneme_counts_no_further_than_the_table() -> None:
    lm = small_lm()
    inputs = woven(random.Random(2), 1, longest=1)
    windows = [[1] * len(OFFSETS)]
    longer = [item._replace(frames=item.frames + MAX_COUNT + 7) if item.frames else item for item in inputs]
    stream = LmBatch(lm, 1).open([1.0, 0.0], 1.0)
    stream.extend(windows)
    for got, expected in zip(stream.forward(longer, 0), training_logits(lm, longer, windows, 0, 1.0), strict=True):
        np.testing.assert_allclose(got[: len(expected)], expected, atol=1e-5, rtol=0)


def test_a_mix_of_voices_lies_between_them() -> None:
    inputs = woven(random.Random(2), 1)

    def first(weights: list[float]) -> Logits:
        stream = LmBatch(small_lm(), 1).open(weights, 1.0)
        stream.extend([[1] * len(OFFSETS)])
        return stream.forward(inputs, 0)

    one, other, mixed = first([1.0, 0.0]), first([0.0, 1.0]), first([0.5, 0.5])
    assert not np.array_equal(one, other)
    assert not np.array_equal(one, mixed)
    assert not np.array_equal(other, mixed)


def test_cutting_the_inputs_changes_nothing() -> None:
    """Also into more rows than one pass takes; a start further back forgets what came after."""
    rng = random.Random(3)
    text = random_text(rng, 5)
    inputs = woven(rng, len(text.windows))
    stream = LmBatch(small_lm(), 1).open([1.0, 0.0], 1.0)
    stream.extend(text.windows)
    whole = stream.forward(inputs, 0)
    at = 0
    while at < len(inputs):
        if rng.random() < 0.5:
            stream.forward(inputs[-5:], at)  # rejected
        count = rng.randint(1, 3 * MAX_ROWS)
        np.testing.assert_allclose(stream.forward(inputs[at : at + count], at), whole[at : at + count], atol=1e-5)
        at += count


def test_phonemes_come_and_go() -> None:
    """Vectors appended in parts and freed behind give the logits of all at once."""
    rng = random.Random(4)
    text = random_text(rng, 8)
    inputs = woven(rng, len(text.windows))
    whole = LmBatch(small_lm(), 1).open([1.0, 0.0], 1.0)
    whole.extend(text.windows)
    expected = whole.forward(inputs, 0)
    stream = LmBatch(small_lm(), 1).open([1.0, 0.0], 1.0)
    known = 0
    for at, item in enumerate(inputs):
        while known <= item.phoneme:
            stream.extend(text.windows[known : known + 2])
            known += 2
        stream.extend([])
        stream.forget(item.phoneme - 1)
        np.testing.assert_allclose(stream.forward([item], at)[0], expected[at], atol=1e-5)
    assert stream.dropped == inputs[-1].phoneme - 1
    stream.forget(0)  # going back is nothing to do
    assert stream.dropped == inputs[-1].phoneme - 1


def test_bad_calls_are_refused() -> None:
    stream = LmBatch(small_lm(), 1).open([1.0, 0.0], 1.0)
    with pytest.raises(ValueError, match="a window has 3 symbols"):
        stream.extend([[1, 2, 3]])
    stream.extend([[1] * len(OFFSETS)])
    with pytest.raises(ValueError, match="only 0 positions are cached"):
        stream.forward([StreamInput(NO_TOKEN, 0, 0, 0)], 1)


@pytest.mark.parametrize("field", ["symbols", "voices", "codebooks", "codebook_size"])
def test_bad_sizes_are_named(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} is 0"):
        SpeechLmConfig(**{"symbols": SYMBOLS, "voices": 1, field: 0})  # type: ignore[arg-type]


def test_a_changed_model_gives_new_streams_the_new_weights() -> None:
    lm = SpeechLm(SpeechLmConfig(SYMBOLS, 1, codebook_size=SIZE))
    phoneme = StreamInput(NO_TOKEN, 0, 0, 0)

    def logits() -> Logits:
        stream = LmBatch(lm, 1).open([1.0], 1.0)
        stream.extend([[1] * len(OFFSETS)])
        return stream.forward([phoneme], 0)

    before = logits()
    with torch.no_grad():
        lm.get_parameter("heads.0.weight").mul_(2)
    np.testing.assert_allclose(logits(), 2 * before, rtol=1e-4, atol=1e-6)
