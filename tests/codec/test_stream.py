"""Decoding with a state: any cutting of the stream gives the same samples, rows do not touch each other, nothing looks ahead."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models.codec.codec import NeuralCodec
from models.codec.decoder import DecoderState
from tests.codec.conftest import random_codes

CUTS = st.lists(st.integers(1, 7), min_size=1, max_size=8)
TOLERANCE = 1e-4


def decode_cut(codec: NeuralCodec, codes: Tensor, cuts: list[int], state: DecoderState | None = None) -> Tensor:
    state = codec.initial_state(codes.shape[0]) if state is None else state
    return torch.cat([codec.decode_step(part, state) for part in codes.split(cuts, dim=-1)], dim=-1)


def tensors(state: DecoderState) -> list[Tensor]:
    return [*state.pasts, state.source.phase, state.source.f0, state.source.frame, state.overlap]


def assert_close(a: Tensor, b: Tensor) -> None:
    assert a.shape == b.shape
    torch.testing.assert_close(a, b, rtol=0, atol=TOLERANCE)


@given(cuts=CUTS, batch=st.integers(1, 3), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_any_cutting_gives_the_same_samples(small: NeuralCodec, cuts: list[int], batch: int, seed: int) -> None:
    codes = random_codes(small, sum(cuts), batch, seed)
    whole = small.decode_step(codes, small.initial_state(batch))
    assert whole.shape == (batch, 600 * sum(cuts))
    assert_close(decode_cut(small, codes, cuts), whole)
    assert_close(small.decode(codes), whole)


def test_frame_by_frame_equals_at_once_in_full_size(full: NeuralCodec) -> None:
    codes = random_codes(full, 24)
    assert_close(decode_cut(full, codes, [1] * 24), full.decode_step(codes, full.initial_state(1)))


def test_a_long_stream_stays_equal(small: NeuralCodec) -> None:
    """Rounding of the pitch adds up in the phase, so over minutes only rows that do not depend on their number stay equal."""
    codes = random_codes(small, 800)  # 20 s
    at_once = small.decode_step(codes, small.initial_state(1))
    assert_close(decode_cut(small, codes, [1] * 800), at_once)
    assert_close(small.decode(codes), at_once)


def test_streams_of_any_lengths_equal_each_alone(small: NeuralCodec) -> None:
    codes, lengths = random_codes(small, 9, batch=3), (2, 9, 2)
    states = [small.initial_state(1) for _ in lengths]
    for _ in range(2):
        parts = [codes[row, :, :length].numpy() for row, length in enumerate(lengths)]
        made = small.decode_streams(parts, states)
    for row, length in enumerate(lengths):
        alone = small.decode(codes[row : row + 1, :, :length].repeat(1, 1, 2))[0]
        assert_close(torch.from_numpy(made[row]), alone[len(alone) // 2 :])


@given(batch=st.integers(2, 4), frames=st.integers(1, 9), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=15)
def test_streams_of_a_batch_equal_each_alone(small: NeuralCodec, batch: int, frames: int, seed: int) -> None:
    codes = random_codes(small, frames, batch, seed)
    together = small.decode(codes)
    for row in range(batch):
        assert_close(together[row : row + 1], small.decode(codes[row : row + 1]))


def test_streams_joined_for_some_steps_continue_as_if_alone(small: NeuralCodec) -> None:
    codes = random_codes(small, 12, batch=3)
    alone = small.decode(codes)
    states = [small.initial_state(1) for _ in range(3)]
    parts: list[list[Tensor]] = [[], [], []]
    # Who is decoded with whom, and how many frames.
    for together, frames in (((0,), 2), ((0, 2), 1), ((1, 2, 0), 3), ((1, 2), 2), ((2, 1, 0), 4)):
        starts = [sum(part.shape[-1] for part in parts[row]) // small.frame_samples for row in together]
        joined = type(states[0]).join([states[row] for row in together])
        now = torch.stack([codes[row, :, at : at + frames] for row, at in zip(together, starts, strict=True)])
        pcm = small.decode_step(now, joined)
        for row, state, piece in zip(together, joined.split(), pcm, strict=True):
            states[row] = state
            parts[row].append(piece)
    for row in range(3):
        made = torch.cat(parts[row])
        assert_close(made, alone[row, : len(made)])


def test_snapshot_is_untouched_and_continues_alike(small: NeuralCodec) -> None:
    codes = random_codes(small, 12, batch=2)
    state = small.initial_state(2)
    small.decode_step(codes[..., :5], state)
    kept = state.snapshot()
    before = [part.clone() for part in tensors(kept)]
    first = small.decode_step(codes[..., 5:], state)
    assert all(map(torch.equal, before, tensors(kept)))
    assert not torch.equal(state.overlap, kept.overlap)
    assert torch.equal(small.decode_step(codes[..., 5:], kept), first)


def test_writing_into_a_state_does_not_reach_its_snapshot(small: NeuralCodec) -> None:
    state = small.initial_state(2)
    small.decode_step(random_codes(small, 3, batch=2), state)
    kept = state.snapshot()
    before = [part.clone() for part in tensors(kept)]
    with torch.inference_mode():
        for part in tensors(state):
            part.fill_(3)
    assert all(map(torch.equal, before, tensors(kept)))


def test_reset_restarts_only_the_named_rows(small: NeuralCodec) -> None:
    first, second = random_codes(small, 7, batch=3), random_codes(small, 5, batch=3, seed=1)
    state, untouched = small.initial_state(3), small.initial_state(3)
    small.decode_step(first, state)
    small.decode_step(first, untouched)
    state.reset(torch.tensor([True, False, True]))
    made = small.decode_step(second, state)
    fresh, running = small.decode(second), small.decode_step(second, untouched)
    assert_close(made, torch.stack([fresh[0], running[1], fresh[2]]))
    assert (fresh - running).abs().amax(1).min() > 0.01


def test_reset_heals_a_row_that_is_not_a_number(small: NeuralCodec) -> None:
    state = small.initial_state(2)
    with torch.inference_mode():
        for part in (*state.pasts, state.overlap, state.source.phase, state.source.f0):
            part[0] = torch.nan
    state.reset(torch.tensor([True, False]))
    assert small.decode_step(random_codes(small, 2, batch=2), state).isfinite().all()


@pytest.mark.parametrize("frame", [0, 3, 6])
def test_no_gradient_from_later_frames(small: NeuralCodec, frame: int) -> None:
    decoder = small.decoder
    x = small.dequantize(random_codes(small, 8)).clone().requires_grad_()
    f0 = torch.full((1, 16), 140.0)
    f0[0, 4:6] = 0.0
    f0.requires_grad_()
    out = decoder(x, decoder.initial_state(1), f0)
    assert small.lookahead_frames == 0
    heard = out.pcm[:, : 600 * (frame + 1)].square().sum()
    by_input, by_f0 = torch.autograd.grad(heard, [x, f0])
    assert by_input[:, frame + 1 :].abs().max() == 0
    assert by_f0[:, 2 * (frame + 1) :].abs().max() == 0
    assert by_input[:, frame].abs().max() > 0
    assert by_f0[:, 2 * frame : 2 * frame + 2].abs().max() > 0


@pytest.mark.parametrize("frame", [0, 3, 6])
def test_later_codes_change_no_earlier_sample(small: NeuralCodec, frame: int) -> None:
    """Covers the codec's own pitch, through which no gradient flows."""
    codes = random_codes(small, 8)
    changed = codes.clone()
    changed[..., frame + 1 :] = random_codes(small, 7 - frame, seed=5)
    a, b = (small.decode_step(codes, small.initial_state(1)) for codes in (codes, changed))
    assert torch.equal(a[:, : 600 * (frame + 1)], b[:, : 600 * (frame + 1)])
    assert not torch.equal(a, b)


def test_pitch_of_the_test_codec_moves(small: NeuralCodec) -> None:
    """Otherwise the tests above would say nothing about the source."""
    with torch.inference_mode():
        out = small.decoder(small.dequantize(random_codes(small, 40)), small.initial_state(1))
    voiced = out.voicing > 0
    assert 0.2 < voiced.float().mean() < 0.9
    assert out.log_f0.std() > 0.1
    assert out.pcm.std() > 0.01
