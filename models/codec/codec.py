"""The codec interface, and the project's own neural codec: 24 kHz, 40 frames a second, 4 codebooks of 1024.

Knows tokens and samples; knows no text and no language model. The quantiser is that of the ``encodec`` package
(Défossez et al. 2022), with codebook vectors projected to a small width (Yu et al. 2022, factorised codes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from encodec.quantization.core_vq import ResidualVectorQuantization, VectorQuantization
from torch import Tensor, nn
from torch.nn import functional as F

from models.codec.blocks import check_sizes
from models.codec.decoder import Decoder, DecoderConfig, DecoderState
from models.codec.encoder import Encoder, EncoderConfig
from models.codec.linear import linear_rows

Codes = npt.NDArray[np.int64]
Pcm = npt.NDArray[np.float32]


class CodecState(Protocol):
    """What a codec keeps of a batch of streams between frames."""

    @classmethod
    def join(cls: type[State], states: Sequence[State]) -> State:
        """The streams of ``states`` side by side, to be decoded together."""

    def split(self: State) -> list[State]:
        """The streams one by one; undoes ``join``."""

    def snapshot(self: State) -> State:
        """A copy that later decoding does not touch."""

    def reset(self, rows: Tensor) -> None:
        """Set the rows where ``rows`` [B] is true back to the start of a stream."""


State = TypeVar("State", bound=CodecState)


class FrameDecoder(Protocol[State]):
    """What makes sound of streams of codes, each a whole number below ``codebook_size``."""

    sample_rate: int

    def initial_state(self, batch: int) -> State:
        """State of ``batch`` streams before their first frame."""

    def decode_streams(self, codes: Sequence[Codes], states: Sequence[State]) -> list[Pcm]:
        """Streams of one row each, in as few passes as may be: codes [K, F] of each -> PCM [frame_samples F]; ``states`` are moved on."""


class Codec(FrameDecoder[State], Protocol[State]):
    """What the engine needs of any codec. Codes are whole numbers [B, K, F] below ``codebook_size``.

    Codes and PCM of another shape or range raise ValueError.
    """

    frame_samples: int
    codebooks: int
    codebook_size: int
    lookahead_frames: int  # frames after a frame that its samples depend on

    def encode(self, pcm: Tensor) -> Tensor:
        """PCM [B, N], N a multiple of ``frame_samples`` -> codes [B, K, F]."""

    def decode(self, codes: Tensor) -> Tensor:
        """Codes [B, K, F] -> PCM [B, frame_samples F], from silence."""

    def decode_step(self, codes: Tensor, state: State) -> Tensor:
        """Codes [B, K, F] -> PCM [B, frame_samples F]; ``state`` is moved on."""


SILENT_FRAMES = 12


def after_silence(codec: Codec[State], device: torch.device) -> State:
    """State of one stream that has been silent for SILENT_FRAMES, on the codec's ``device``: nothing is left of its beginning.

    Streams are spoken from it. A decoder whose memory is empty begins with a burst of noise, for training does not judge the frames in
    which the memory fills.
    """
    silence = codec.encode(
        torch.zeros(1, 2 * SILENT_FRAMES * codec.frame_samples, device=device)
    )  # the frames at its ends hear them
    state = codec.initial_state(1)
    codec.decode_step(silence[..., SILENT_FRAMES // 2 : SILENT_FRAMES // 2 + SILENT_FRAMES].contiguous(), state)
    return state


def check_pcm(pcm: Tensor, frame_samples: int) -> None:
    """Raise ValueError unless ``pcm`` is [B, N] of whole frames, at least one."""
    if pcm.ndim != 2 or pcm.shape[1] == 0 or pcm.shape[1] % frame_samples:
        raise ValueError(f"pcm has shape {list(pcm.shape)}; allowed: [B, N], N a multiple of {frame_samples} from 1")


def check_codes(codes: Tensor, codebooks: int, codebook_size: int, streams: int) -> None:
    """Raise ValueError unless ``codes`` are [streams, codebooks, F] of at least one frame, every one below ``codebook_size``."""
    if codes.ndim != 3 or codes.shape[1] != codebooks or codes.numel() == 0:
        raise ValueError(f"codes have shape {list(codes.shape)}; allowed: [B, {codebooks}, F], B and F from 1")
    if codes.shape[0] != streams:
        raise ValueError(f"codes are of {codes.shape[0]} streams, their state of {streams}")
    low, high = (int(end) for end in codes.aminmax())
    if low < 0 or high >= codebook_size:
        raise ValueError(f"codes reach from {low} to {high}; allowed: 0 to {codebook_size - 1}")


def decode_by_length(
    codec: Codec[State], codes: Sequence[Codes], states: Sequence[State], device: torch.device
) -> list[Pcm]:
    """``Codec.decode_streams`` by ``decode_step``: those with equally many frames together."""
    made: dict[int, Pcm] = {}
    for frames in {each.shape[-1] for each in codes}:
        alike = [index for index, each in enumerate(codes) if each.shape[-1] == frames]
        own = [states[index] for index in alike]
        joined = type(own[0]).join(own)
        pcm = codec.decode_step(torch.from_numpy(np.stack([codes[index] for index in alike])).to(device), joined)
        for state, moved in zip(own, joined.split(), strict=True):
            for item in fields(moved):  # type: ignore[arg-type]
                setattr(state, item.name, getattr(moved, item.name))
        made |= zip(alike, pcm.float().cpu().numpy(), strict=True)
    return [made[index] for index in range(len(codes))]


@dataclass(frozen=True, slots=True)
class CodecConfig:
    """Sizes of the project's codec."""

    codebooks: int = 4
    codebook_size: int = 1024
    codebook_width: int = 16
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    decoder: DecoderConfig = field(default_factory=DecoderConfig)

    def __post_init__(self) -> None:
        check_sizes(self, ("codebooks", "codebook_size", "codebook_width"))
        if self.encoder.width != self.decoder.input_width:
            raise ValueError(
                f"decoder.input_width is {self.decoder.input_width}; it must equal encoder.width {self.encoder.width}"
            )


DECODE_FRAMES = 16  # decoded at a time when all codes are there: memory stays small and matrices in cache


class NeuralCodec(nn.Module):
    """Encoder, residual vector quantiser and causal decoder; a ``Codec``."""

    sample_rate = 24_000
    frame_samples = 600
    lookahead_frames = 0

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
        check_pcm(pcm, self.frame_samples)
        codes: Tensor = self.quantizer.encode(self.encoder(pcm).transpose(1, 2))
        return codes.transpose(0, 1)

    @torch.inference_mode()
    def decode(self, codes: Tensor) -> Tensor:
        """See ``Codec.decode``."""
        state = self.initial_state(codes.shape[0])
        return torch.cat([self.decode_step(part, state) for part in torch.split(codes, DECODE_FRAMES, dim=-1)], dim=-1)

    def initial_state(self, batch: int) -> DecoderState:
        """See ``Codec.initial_state``."""
        return self.decoder.initial_state(batch)

    @torch.inference_mode()
    def decode_step(self, codes: Tensor, state: DecoderState) -> Tensor:
        """See ``Codec.decode_step``."""
        check_codes(codes, self.codebooks, self.codebook_size, state.overlap.shape[0])
        pcm: Tensor = self.decoder(self.dequantize(codes), state).pcm
        return pcm

    def decode_streams(self, codes: Sequence[Codes], states: Sequence[DecoderState]) -> list[Pcm]:
        """See ``Codec.decode_streams``."""
        return decode_by_length(self, codes, states, self.decoder.synthesis_window.device)

    def vectors(self) -> Tensor:
        """What each code of each codebook adds to the decoder's input, [K codebook_size, D]."""
        every = torch.arange(self.codebook_size, device=self.decoder.synthesis_window.device)
        return torch.cat(self._parts(every.expand(1, self.codebooks, -1)), dim=1)[0]

    def dequantize(self, codes: Tensor) -> Tensor:
        """Codes [B, K, F] -> the decoder's input [B, F, D]."""
        return torch.stack(self._parts(codes)).sum(0)

    def _parts(self, codes: Tensor) -> list[Tensor]:
        """The vectors [B, F, D] of each codebook's codes; what quantizer.decode sums, without its moves between layouts."""
        parts = []
        for layer, index in zip(self.quantizer.layers, codes.unbind(1), strict=True):
            assert isinstance(layer, VectorQuantization)
            vectors = F.embedding(index, layer.codebook)
            if isinstance(layer.project_out, nn.Linear) and not torch.is_grad_enabled():
                parts.append(linear_rows(vectors, layer.project_out.weight, layer.project_out.bias))
            else:
                parts.append(layer.project_out(vectors))
        return parts
