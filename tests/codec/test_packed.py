"""The compiled codec: the samples of the one in torch, and to the bit the same however streams are cut and put together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.codec import kernels
from models.codec.codec import CodecConfig, NeuralCodec, Pcm
from models.codec.decoder import DecoderConfig
from models.codec.encoder import EncoderConfig
from models.codec.packed import PackedCodec
from models.products import Floats
from tests.codec.conftest import SMALL, random_codec, random_codes

# Nothing here is a multiple of a vector or of a block.
ODD = CodecConfig(
    codebooks=2,
    codebook_size=19,
    codebook_width=5,
    encoder=EncoderConfig(width=21, fast_blocks=1, slow_blocks=1),
    decoder=DecoderConfig(input_width=21, width=71, slow_blocks=2, pitch_blocks=1, filter_blocks=2, expansion=1),
)
DTYPES = (torch.float32, torch.bfloat16)


def rounded(config: CodecConfig) -> NeuralCodec:
    """With weights that bfloat16 holds, as those of a bundle are."""
    codec = random_codec(config)
    for weight in codec.parameters():
        weight.copy_(weight.bfloat16())
    return codec


@pytest.fixture(scope="module", params=DTYPES, ids=str)
def packed(request: pytest.FixtureRequest) -> PackedCodec:
    return PackedCodec(rounded(SMALL), request.param)


def decode_cut(codec: PackedCodec, codes: torch.Tensor, cuts: list[int]) -> Pcm:
    state = codec.initial_state(1)
    parts = codes[0].split(cuts, dim=-1)
    return np.concatenate([codec.decode_streams([part.numpy()], [state])[0] for part in parts])


@pytest.mark.parametrize(
    ("dtype", "pitch_error", "error"), [(torch.float32, 2e-6, 1e-4), (torch.bfloat16, 5e-3, 0.06)], ids=str
)
@pytest.mark.parametrize("config", [SMALL, ODD, CodecConfig()], ids=["small", "odd", "full"])
def test_it_makes_what_torch_makes(
    monkeypatch: pytest.MonkeyPatch, config: CodecConfig, dtype: torch.dtype, pitch_error: float, error: float
) -> None:
    """The same pitch, and of the same pitch the same samples; what is left of a difference in pitch adds up in the phase."""
    pitches = []

    def source(*args: Any) -> Floats:
        pitches.append(kernels.source(*args))
        return pitches[-1]

    codec = rounded(config)
    codes = random_codes(codec, 40, batch=2)
    compiled = PackedCodec(codec, dtype)
    monkeypatch.setattr("models.codec.packed.source", source)
    made = compiled.decode_step(codes, compiled.initial_state(2))
    f0 = torch.from_numpy(pitches[0]).view(2, -1)
    assert 0.1 < (f0 > 0).float().mean() < 0.95  # both kinds of frames are there
    with torch.inference_mode():
        wanted = codec.decoder(codec.dequantize(codes), codec.initial_state(2), f0)
    hertz = torch.where(wanted.voicing > 0, wanted.log_f0.clamp(5.3, 9.3).exp2(), 0.0)
    off = (hertz - f0).abs() > pitch_error * hertz
    assert not off[
        wanted.voicing.abs() > 100 * pitch_error
    ].any()  # where it hangs on no rounding whether there is a pitch
    assert wanted.pcm.std() > 0.01
    torch.testing.assert_close(made, wanted.pcm, rtol=0, atol=error)


@given(
    cuts=st.lists(st.integers(1, 13), min_size=1, max_size=8),
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=30)
def test_any_cutting_gives_the_same_bits(packed: PackedCodec, cuts: list[int], seed: int) -> None:
    codes = torch.randint(32, (1, 3, sum(cuts)), generator=torch.Generator().manual_seed(seed))
    assert np.array_equal(decode_cut(packed, codes, cuts), packed.decode(codes)[0].numpy())


def test_a_long_stream_keeps_its_bits(packed: PackedCodec) -> None:
    codes = torch.randint(32, (1, 3, 800), generator=torch.Generator().manual_seed(1))  # 20 s
    assert np.array_equal(decode_cut(packed, codes, [1] * 800), packed.decode(codes)[0].numpy())


@pytest.mark.parametrize("schedule", range(20))
def test_streams_beside_others_get_the_bits_they_get_alone(packed: PackedCodec, schedule: int) -> None:
    """Any streams, any number of frames of each, in any order."""
    rng = np.random.default_rng(schedule)
    codes = rng.integers(0, 32, (5, 3, 40))
    at, states = [0] * 5, [packed.initial_state(1) for _ in range(5)]
    made: list[list[Pcm]] = [[] for _ in range(5)]
    while min(at) < 40:
        chosen = [int(row) for row in rng.permutation(5)[: rng.integers(1, 6)] if at[row] < 40]
        ends = [min(40, at[row] + int(rng.integers(1, 12))) for row in chosen]
        if not chosen:
            continue
        parts = [codes[row, :, at[row] : end] for row, end in zip(chosen, ends, strict=True)]
        pcms = packed.decode_streams(parts, [states[row] for row in chosen])
        for row, end, pcm in zip(chosen, ends, pcms, strict=True):
            at[row] = end
            made[row].append(pcm)
    whole = packed.decode(torch.from_numpy(codes)).numpy()
    for row in range(5):
        assert np.array_equal(np.concatenate(made[row]), whole[row])


def test_a_batch_with_one_state_equals_each_alone(packed: PackedCodec) -> None:
    codes = torch.randint(32, (3, 3, 9), generator=torch.Generator().manual_seed(2))
    state = packed.initial_state(3)
    both = [packed.decode_step(part, state) for part in codes.split([4, 5], dim=-1)]
    assert torch.equal(torch.cat(both, dim=-1), packed.decode(codes))
    assert torch.equal(packed.decode(codes)[1:2], packed.decode(codes[1:2]))


def test_states_are_joined_split_kept_and_reset(packed: PackedCodec) -> None:
    codes = torch.randint(32, (2, 3, 12), generator=torch.Generator().manual_seed(3))
    whole = packed.decode(codes)
    first, second = (packed.initial_state(1) for _ in range(2))
    for row, state in enumerate((first, second)):
        packed.decode_step(codes[row : row + 1, :, :5], state)
    joined = type(first).join([second, first])
    kept = joined.snapshot()
    rest = packed.decode_step(codes.flip(0)[..., 5:], joined)
    assert torch.equal(rest.flip(0), whole[:, 600 * 5 :])
    assert torch.equal(packed.decode_step(codes.flip(0)[..., 5:], kept), rest)
    parts = joined.split()
    parts[0].memory[...] = np.nan
    assert np.isnan(joined.memory[0]).all()
    joined.reset(torch.tensor([True, False]))
    assert torch.equal(packed.decode_step(codes, joined)[0], whole[0])


def test_weights_are_those_of_the_moment() -> None:
    codec = random_codec(SMALL)
    packed = PackedCodec(codec, torch.float32)
    codes = random_codes(codec, 3)
    before = packed.decode(codes)
    for weight in (*codec.decoder.parameters(), codec.quantizer.layers[0].codebook):
        weight.zero_()
    assert torch.equal(packed.decode(codes), before)
    assert not torch.equal(PackedCodec(codec, torch.float32).decode(codes), before)


def test_wrong_codes_are_refused_before_any_stream_has_moved(packed: PackedCodec) -> None:
    good, states = np.zeros((3, 2), np.int64), [packed.initial_state(1), packed.initial_state(1)]
    bad = good.copy()
    bad[1, 1] = 32
    with pytest.raises(ValueError, match="codes reach from 0 to 32; allowed: 0 to 31"):
        packed.decode_streams([good, bad], states)
    with pytest.raises(ValueError, match=r"codes have shape \[1, 2, 2\]; allowed: \[B, 3, F\]"):
        packed.decode_streams([good, good[:2]], states)
    with pytest.raises(ValueError, match="codes are of 1 streams, their state of 2"):
        packed.decode_streams([good], [packed.initial_state(2)])
    assert not any(state.memory.any() for state in states)


def test_no_stream_sees_its_future(packed: PackedCodec) -> None:
    codes = np.random.default_rng(4).integers(0, 32, (3, 8))
    changed = codes.copy()
    changed[:, 5:] = (changed[:, 5:] + 1) % 32
    a, b = (packed.decode_streams([each], [packed.initial_state(1)])[0] for each in (codes, changed))
    assert np.array_equal(a[: 600 * 5], b[: 600 * 5])
    assert not np.array_equal(a, b)
