"""Codecs with random weights: a small one, and the sizes that are trained."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from models.codec.codec import CodecConfig, NeuralCodec
from models.codec.decoder import DecoderConfig
from models.codec.encoder import EncoderConfig

SMALL = CodecConfig(
    codebooks=3,
    codebook_size=32,
    codebook_width=8,
    encoder=EncoderConfig(width=24, fast_blocks=1, slow_blocks=1),
    decoder=DecoderConfig(input_width=24, width=32, slow_blocks=1, pitch_blocks=1, filter_blocks=1, expansion=2),
)


def random_codec(config: CodecConfig, seed: int = 7) -> NeuralCodec:
    """A codec whose codes all differ and whose pitch moves, so that an error anywhere is heard."""
    torch.manual_seed(seed)
    codec = NeuralCodec(config).eval().requires_grad_(False)
    for layer in codec.quantizer.layers:
        layer._codebook.embed.normal_()  # zeros until the first batch of training
        layer._codebook.inited.fill_(1)
    codec.decoder.pitch_head.weight.mul_(4)
    for part in codec.decoder.filters:
        part.scale.fill_(1.0)
    codec.decoder.head.weight.mul_(10)
    return codec


def random_codes(codec: NeuralCodec, frames: int, batch: int = 1, seed: int = 0) -> Tensor:
    shape = (batch, codec.codebooks, frames)
    return torch.randint(codec.codebook_size, shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="session")
def small() -> NeuralCodec:
    return random_codec(SMALL)


@pytest.fixture(scope="session")
def full() -> NeuralCodec:
    return random_codec(CodecConfig())
