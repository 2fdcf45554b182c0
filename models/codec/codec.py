"""The codec interface, and the project's own neural codec: 24 kHz, 40 frames a second, 4 codebooks of 1024.

Knows tokens and samples; knows no text and no language model. The quantiser is that of the ``encodec`` package
(Défossez et al. 2022), with codebook vectors projected to a small width (Yu et al. 2022, factorised codes).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
from encodec.quantization.core_vq import ResidualVectorQuantization
from torch import Tensor, nn

from models.codec.decoder import Decoder, DecoderConfig, DecoderState
from models.codec.encoder import Encoder, EncoderConfig


class Codec(Protocol):
    """What the engine needs of any codec. Codes are [B, K, F] with values below ``codebook_size``."""

    sample_rate: int
    frame_samples: int
    codebooks: int
    codebook_size: int

    def encode(self, pcm: Tensor) -> Tensor:
        """PCM [B, N], N a multiple of ``frame_samples`` -> codes [B, K, F]."""

    def decode(self, codes: Tensor) -> Tensor:
        """Codes [B, K, F] -> PCM [B, frame_samples F], from silence."""

    def initial_state(self, batch: int) -> DecoderState:
        """State of ``batch`` streams before their first frame."""

    def decode_step(self, codes: Tensor, state: DecoderState) -> Tensor:
        """Codes [B, K, F] -> PCM [B, frame_samples F]; ``state`` is moved on."""


@dataclass(frozen=True, slots=True)
class CodecConfig:
    """Sizes of the project's codec."""

    codebooks: int = 4
    codebook_size: int = 1024
    codebook_width: int = 16
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    decoder: DecoderConfig = field(default_factory=DecoderConfig)

    def __post_init__(self) -> None:
        if self.encoder.width != self.decoder.input_width:
            raise ValueError(
                f"decoder.input_width is {self.decoder.input_width}; it must equal encoder.width {self.encoder.width}"
            )


class NeuralCodec(nn.Module):
    """Encoder, residual vector quantiser and causal decoder; a ``Codec``."""

    sample_rate = 24_000
    frame_samples = 600

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.config = config
        self.codebooks = config.codebooks
        self.codebook_size = config.codebook_size
        self.encoder = Encoder(config.encoder)
        self.quantizer = ResidualVectorQuantization(
            num_quantizers=config.codebooks,
            dim=config.encoder.width,
            codebook_size=config.codebook_size,
            codebook_dim=config.codebook_width,
            threshold_ema_dead_code=0,  # training revives dead codes itself: the package's replacement is undone by its own EMA
        )
        self.decoder = Decoder(config.decoder)

    @torch.inference_mode()
    def encode(self, pcm: Tensor) -> Tensor:
        """See ``Codec.encode``."""
        codes: Tensor = self.quantizer.encode(self.encoder(pcm).transpose(1, 2))
        return codes.transpose(0, 1)

    @torch.inference_mode()
    def decode(self, codes: Tensor) -> Tensor:
        """See ``Codec.decode``."""
        return self.decode_step(codes, self.initial_state(codes.shape[0]))

    def initial_state(self, batch: int) -> DecoderState:
        """See ``Codec.initial_state``."""
        return self.decoder.initial_state(batch)

    @torch.inference_mode()
    def decode_step(self, codes: Tensor, state: DecoderState) -> Tensor:
        """See ``Codec.decode_step``."""
        return self.decoder(self.dequantize(codes), state).pcm

    def dequantize(self, codes: Tensor) -> Tensor:
        """Codes [B, K, F] -> the decoder's input [B, F, D]."""
        x: Tensor = self.quantizer.decode(codes.transpose(0, 1))
        return x.transpose(1, 2).to(self.decoder.upsample.weight.dtype)
