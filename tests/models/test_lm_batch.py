"""Many streams in one pass: each gets, bit for bit, what it gets alone."""

from __future__ import annotations

import random

import numpy as np
import pytest

from models.lm_stream import LmBatch, LmStream, Request, StreamInput
from models.speech_lm import NO_TOKEN
from tests.speculate.streams import small_lm

PHONEMES = 12


def inputs_of(rng: random.Random, length: int) -> list[StreamInput]:
    """Any inputs; the model does not ask whether a script would allow them."""
    config = small_lm().config
    made = []
    for _ in range(length):
        book = rng.randrange(config.codebooks)
        token = NO_TOKEN if rng.random() < 0.1 else book * config.codebook_size + rng.randrange(config.codebook_size)
        made.append(StreamInput(token, rng.randrange(PHONEMES), rng.randrange(1, 60), rng.randrange(config.codebooks)))
    return made


def open_stream(batch: LmBatch, seed: int) -> LmStream:
    rng = random.Random(seed)
    stream = batch.open([0.3, 0.7], rng.choice([0.8, 1.0, 1.3]))
    stream.extend([[rng.randrange(small_lm().config.symbols) for _ in range(8)] for _ in range(PHONEMES)])
    return stream


def test_streams_that_come_and_go_get_what_they_get_alone() -> None:
    rng = random.Random(4)
    batch = LmBatch(small_lm(), 4)
    live: list[tuple[int, LmStream, LmStream, int]] = []  # seed, in the batch, alone, length
    compared = passes = 0
    for seed in range(1000, 1120):
        if len(live) < 4 and rng.random() < 0.4:
            live.append((seed, open_stream(batch, seed), open_stream(LmBatch(small_lm(), 1), seed), 0))
        if live and rng.random() < 0.1:
            live.pop(rng.randrange(len(live)))[1].close()
        chosen = [index for index in range(len(live)) if rng.random() < 0.7]
        if not chosen:
            continue
        requests, expected = [], []
        for index in rng.sample(chosen, len(chosen)):
            key, stream, alone, length = live[index]
            start = rng.randint(max(0, length - 5), length)
            inputs = inputs_of(rng, rng.choice([1, 2, 5, 16, 20]))
            requests.append(Request(stream, inputs, start))
            expected.append(alone.forward(inputs, start))
            live[index] = (key, stream, alone, start + len(inputs))
        for got, want in zip(batch.forward(requests), expected, strict=True):
            assert np.array_equal(got, want)
            compared += len(got)
        passes += 1
    assert passes > 60
    assert compared > 1000


def test_slots_are_bounded_and_come_back() -> None:
    batch = LmBatch(small_lm(), 2)
    first, second = batch.open([1, 0], 1.0), batch.open([1, 0], 1.0)
    with pytest.raises(ValueError, match="all 2 slots are taken"):
        batch.open([1, 0], 1.0)
    first.close()
    first.close()
    third = batch.open([1, 0], 1.0)
    assert third.slot == 0
    first.close()  # long gone: does not free its successor's slot
    with pytest.raises(ValueError, match="all 2 slots"):
        batch.open([1, 0], 1.0)
    assert second.slot == 1


def test_a_parked_stream_goes_on_in_another_slot_as_if_nothing_had_been() -> None:
    rng = random.Random(5)
    batch = LmBatch(small_lm(), 2)
    parked, alone = open_stream(batch, 1), open_stream(LmBatch(small_lm(), 1), 1)
    first, second = inputs_of(rng, 40), inputs_of(rng, 20)
    np.testing.assert_array_equal(parked.forward(first, 0), alone.forward(first, 0))
    parked.park()
    others = [open_stream(batch, seed) for seed in (2, 3)]  # both slots, the old one among them
    for other in others:
        other.forward(inputs_of(rng, 30), 0)
    with pytest.raises(ValueError, match="all 2 slots are taken"):
        parked.unpark()
    others[1].close()
    parked.unpark()
    assert parked.slot == others[1].slot
    np.testing.assert_array_equal(parked.forward(second, 38), alone.forward(second, 38))  # two of them undone
    parked.park()
    parked.close()
    others[0].close()
    assert [batch.open([1.0, 0.0], 1.0).slot for _ in range(2)] == [0, 1]
