"""The codec as the engine sees it: shapes, ranges, and clear errors for what it cannot take."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.codec.codec import CodecConfig, NeuralCodec
from models.codec.decoder import DecoderConfig
from models.codec.encoder import EncoderConfig
from tests.codec.conftest import random_codes


@given(batch=st.integers(1, 3), frames=st.integers(1, 12), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=15)
def test_encode_gives_one_code_per_codebook_and_frame(small: NeuralCodec, batch: int, frames: int, seed: int) -> None:
    pcm = torch.randn(batch, 600 * frames, generator=torch.Generator().manual_seed(seed)) * 0.1
    codes = small.encode(pcm)
    assert codes.shape == (batch, small.codebooks, frames)
    assert codes.dtype == torch.long
    assert 0 <= codes.min() <= codes.max() < small.codebook_size
    assert small.decode(codes).shape == pcm.shape


def test_encode_hears_what_it_encodes(full: NeuralCodec) -> None:
    time = torch.arange(600 * 30) / 24_000
    low, high = (0.3 * torch.sin(2 * torch.pi * hertz * time)[None] for hertz in (150.0, 2500.0))
    a, b = full.encode(low), full.encode(high)
    assert a.shape == (1, 4, 30)
    assert (a != b).float().mean() > 0.25
    assert torch.equal(a, full.encode(low))


def test_codes_of_a_quantised_frame_lead_back_to_it(small: NeuralCodec) -> None:
    codes = random_codes(small, 9, batch=2)
    with torch.inference_mode():
        ours = small.dequantize(codes)
        package = small.quantizer.decode(codes.transpose(0, 1)).transpose(1, 2)
    torch.testing.assert_close(ours, package, rtol=1e-5, atol=1e-5)


@given(seed=st.integers(0, 10_000), frames=st.integers(1, 40))
@settings(deadline=None, max_examples=15)
def test_any_codes_give_finite_samples(small: NeuralCodec, seed: int, frames: int) -> None:
    pcm = small.decode(random_codes(small, frames, seed=seed))
    assert pcm.dtype == torch.float32
    assert pcm.isfinite().all()


@pytest.mark.parametrize("shape", [(1, 599), (1, 601), (2, 900), (1, 0), (600,), (1, 1, 600)])
def test_encode_refuses_other_than_whole_frames(small: NeuralCodec, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"pcm has shape \[.*\]; allowed: \[B, N\], N a multiple of 600"):
        small.encode(torch.zeros(shape))


@pytest.mark.parametrize("shape", [(1, 2, 4), (1, 4, 4), (1, 3, 0), (0, 3, 2), (3, 4)])
def test_decode_refuses_other_shapes(small: NeuralCodec, shape: tuple[int, ...]) -> None:
    codes = torch.zeros(shape, dtype=torch.long)
    with pytest.raises(ValueError, match=r"codes have shape \[.*\]; allowed: \[B, 3, F\]"):
        small.decode_step(codes, small.initial_state(1))


@pytest.mark.parametrize("value", [-1, 32, 1024])
def test_decode_refuses_codes_out_of_range_and_keeps_its_state(small: NeuralCodec, value: int) -> None:
    codes = random_codes(small, 5)
    bad = codes.clone()
    bad[0, 1, 2] = value
    state = small.initial_state(1)
    with pytest.raises(ValueError, match=rf"codes reach from .*{value}.*; allowed: 0 to 31"):
        small.decode_step(bad, state)
    assert torch.equal(small.decode_step(codes, state), small.decode_step(codes, small.initial_state(1)))
    with pytest.raises(ValueError, match="allowed: 0 to 31"):
        small.decode(bad)


def test_decode_refuses_a_state_of_another_batch(small: NeuralCodec) -> None:
    with pytest.raises(ValueError, match="codes are of 1 streams, their state of 2"):
        small.decode_step(random_codes(small, 1), small.initial_state(2))


@pytest.mark.parametrize("value", [0, -3, 2.5, "4", None, True])
@pytest.mark.parametrize("config", [DecoderConfig(), EncoderConfig(), CodecConfig()])
def test_sizes_must_be_whole_numbers_from_one(
    config: DecoderConfig | EncoderConfig | CodecConfig, value: object
) -> None:
    for name, old in vars_of(config).items():
        if isinstance(old, int):
            with pytest.raises(ValueError, match=f"{name} is {value!r}; allowed: a whole number from 1"):
                replace(config, **{name: value})


def vars_of(config: object) -> dict[str, object]:
    return {name: getattr(config, name) for name in type(config).__dataclass_fields__}  # type: ignore[attr-defined]


def test_encoder_and_decoder_must_fit() -> None:
    with pytest.raises(ValueError, match=r"decoder.input_width is 256; it must equal encoder.width 128"):
        CodecConfig(encoder=EncoderConfig(width=128))
