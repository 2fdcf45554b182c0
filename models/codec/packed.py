"""The codec for decoding on the CPU: weights packed for the compiled kernels, streams of any lengths in one pass.

bfloat16 weights are multiplied with rows rounded to bfloat16, as in training under autocast; float32 weights with float32 rows. The pitch
is float32 in both. Knows codes and samples; knows no text and no language model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from models.codec.blocks import ConvNeXtBlock
from models.codec.codec import DECODE_FRAMES, Codes, NeuralCodec, Pcm, check_codes
from models.codec.kernels import (
    CLOCK,
    ENTER_PAST,
    OVERLAP,
    PAST,
    Ints,
    enter,
    filters,
    overlap_add,
    run_blocks,
    shape,
    source,
)
from models.codec.source import BINS, WINDOW
from models.packed import PackedMatrix, aligned, pack
from models.products import Floats, Words


@dataclass(slots=True)
class PackedState:
    """What the next frames of a batch of streams need, one row a stream: its clock (float64), then in float32 the overlap of the last STFT
    frames and the past inputs of every convolution."""

    memory: npt.NDArray[np.float64]  # [B, M], in one piece

    @classmethod
    def join(cls, states: Sequence[PackedState]) -> PackedState:
        """See ``CodecState.join``."""
        return cls(np.concatenate([state.memory for state in states]))

    def split(self) -> list[PackedState]:
        """See ``CodecState.split``."""
        return [PackedState(row[None]) for row in self.memory]

    def snapshot(self) -> PackedState:
        """See ``CodecState.snapshot``."""
        return PackedState(self.memory.copy())

    def reset(self, rows: Tensor) -> None:
        """See ``CodecState.reset``."""
        self.memory[rows.numpy()] = 0

    def addresses(self) -> list[int]:
        """Where each stream's memory begins."""
        start = self.memory.ctypes.data
        return list(range(start, start + self.memory.nbytes, self.memory.strides[0]))


class PackedCodec:
    """A ``Codec`` with the weights of a ``NeuralCodec`` as they are at this moment."""

    def __init__(self, codec: NeuralCodec, dtype: torch.dtype) -> None:
        """``dtype``: bfloat16 or float32, of the weights to multiply with."""
        self._codec = codec
        self.sample_rate = codec.sample_rate
        self.frame_samples = codec.frame_samples
        self.lookahead_frames = codec.lookahead_frames
        self.codebooks = codec.codebooks
        self.codebook_size = codec.codebook_size
        self.encode = codec.encode
        decoder, config = codec.decoder, codec.decoder.config
        with torch.inference_mode():
            self._table = codec.vectors().numpy()
            self._enter = PackedMatrix(decoder.enter.conv.weight.transpose(1, 2).flatten(1).to(dtype))
            assert decoder.enter.conv.bias is not None
            self._enter_bias = _floats(decoder.enter.conv.bias)
            self._blocks = _Blocks([*decoder.slow, *decoder.pitch, *decoder.filters], dtype)
            self._upsample = PackedMatrix(decoder.upsample.weight.to(dtype))
            self._upsample_bias = _floats(decoder.upsample.bias)
            self._pitch_head = _floats(torch.cat([decoder.pitch_head.weight, decoder.pitch_head.bias[:, None]], dim=1))
            self._pitch_entry = _floats(torch.cat([decoder.pitch_entry.weight, decoder.pitch_entry.bias[:, None]], 1).T)
            self._norm = _floats(torch.stack([decoder.norm.weight, decoder.norm.bias]))
            self._head = pack(decoder.head.weight.to(dtype))
            self._head_bias = _floats(decoder.head.bias)
            self._noise = _floats(decoder.source.noise)
            self._chirp, self._window = _floats(decoder.source.chirp), _floats(decoder.source.window)
            self._synthesis_window = _floats(decoder.synthesis_window)
        self._pairs = dtype == torch.bfloat16
        self._width = config.width
        self._slow, self._pitch = config.slow_blocks, config.slow_blocks + config.pitch_blocks
        self._books = np.arange(self.codebooks)[:, None] * self.codebook_size
        # Bytes from the start of a stream's memory.
        self._overlap_at = CLOCK * 8
        self._enter_at = self._overlap_at + OVERLAP * 4
        self._pasts_at = self._enter_at + ENTER_PAST * config.input_width * 4
        total = self._pasts_at + self._blocks.count * PAST * config.width * 4
        self._state_doubles = -(-total // 8)
        self.decode_streams(
            [np.zeros((self.codebooks, 1), np.int64)], [self.initial_state(1)]
        )  # compiles, or loads what is

    def decode(self, codes: Tensor) -> Tensor:
        """See ``Codec.decode``."""
        state = self.initial_state(codes.shape[0])
        return torch.cat([self.decode_step(part, state) for part in torch.split(codes, DECODE_FRAMES, dim=-1)], dim=-1)

    def initial_state(self, batch: int) -> PackedState:
        """See ``Codec.initial_state``."""
        return PackedState(np.zeros((batch, self._state_doubles)))

    def decode_step(self, codes: Tensor, state: PackedState) -> Tensor:
        """See ``Codec.decode_step``."""
        check_codes(codes, self.codebooks, self.codebook_size, len(state.memory))
        batch, books, frames = codes.shape
        rows = codes.transpose(0, 1).reshape(books, batch * frames).numpy()
        return torch.from_numpy(self._decode(rows, [frames] * batch, state.addresses())).view(batch, -1)

    def decode_streams(self, codes: Sequence[Codes], states: Sequence[PackedState]) -> list[Pcm]:
        """See ``Codec.decode_streams``."""
        for each, state in zip(codes, states, strict=True):
            check_codes(torch.from_numpy(each[None]), self.codebooks, self.codebook_size, len(state.memory))
        counts = [each.shape[1] for each in codes]
        pcm = self._decode(np.concatenate(codes, axis=1), counts, [state.addresses()[0] for state in states])
        return np.split(pcm, np.cumsum(counts)[:-1] * self.frame_samples)

    def _decode(self, codes: Codes, counts: list[int], addresses: list[int]) -> Pcm:
        """``codes`` [K, frames of all streams, one stream after another] -> their samples."""
        frames, at = np.array(counts), np.array(addresses)
        x = enter(
            codes + self._books,
            frames,
            at + self._enter_at,
            self._table,
            self._enter.words,
            self._enter_bias,
            self._pairs,
        )
        pasts = at + self._pasts_at
        self._blocks.run(x, frames, 0, self._slow, pasts)
        x = (self._upsample(x) + self._upsample_bias).reshape(-1, self._width)
        frames *= 2  # of the STFT
        self._blocks.run(x, frames, self._slow, self._pitch, pasts)
        pulses, numbers = np.empty((len(x), WINDOW), np.float32), np.empty(len(x), np.int64)
        source(x, frames, at, self._pitch_head, self._pitch_entry, self._chirp, self._window, pulses, numbers)
        self._blocks.run(x, frames, self._pitch, self._blocks.count, pasts)
        made = filters(x, self._norm, self._head, self._head_bias, self._pairs)
        spectra = np.empty((len(x), BINS), np.complex64)
        np.fft.rfft(pulses, out=spectra)  # type: ignore[arg-type]  # the stubs know float64 alone
        shape(made, self._noise, numbers, spectra.view(np.float32))
        np.fft.irfft(spectra, WINDOW, out=pulses)  # type: ignore[arg-type]
        pcm: Pcm = overlap_add(pulses, self._synthesis_window, frames, at + self._overlap_at)
        return pcm


class _Blocks:
    """The weights of ConvNeXt blocks of one size."""

    def __init__(self, blocks: Sequence[ConvNeXtBlock], dtype: torch.dtype) -> None:
        self.count = len(blocks)
        self._pairs = dtype == torch.bfloat16
        convolutions = [block.depthwise.conv for block in blocks]
        taps = [torch.cat([each.weight[:, 0].T, each.bias[None]]) for each in convolutions if each.bias is not None]
        self._convolution = _floats(torch.stack(taps))  # [count, PAST + 2, C]
        self._norms = _floats(torch.stack([torch.stack([block.norm.weight, block.norm.bias]) for block in blocks]))
        self._up = _packed([block.up.weight.to(dtype) for block in blocks])
        self._up_bias = _floats(torch.stack([block.up.bias for block in blocks]))
        self._down = _packed([block.down.weight.to(dtype) for block in blocks])
        self._down_bias = _floats(torch.stack([torch.stack([block.down.bias, block.scale]) for block in blocks]))

    def run(self, x: Floats, counts: Ints, first: int, last: int, pasts: Ints) -> None:
        """See ``kernels.run_blocks``."""
        run_blocks(
            x, counts, first, last, pasts, self._convolution, self._norms, self._up, self._up_bias, self._down,
            self._down_bias, self._pairs,
        )  # fmt: skip


def _floats(tensor: Tensor) -> Floats:
    """A copy in one piece that begins at a cache line."""
    made: Floats = aligned(tuple(tensor.shape), np.float32)
    made[...] = tensor.detach().float().numpy()
    return made


def _packed(weights: Sequence[Tensor]) -> Words:
    """Matrices of one shape, [number, blocks, steps, 64]."""
    parts = [pack(weight) for weight in weights]
    made: Words = aligned((len(parts), *parts[0].shape), np.uint32)
    np.stack(parts, out=made)
    return made
