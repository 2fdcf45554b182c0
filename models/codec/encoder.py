"""The encoder: PCM -> continuous frames at 40 Hz, offline (it sees the future), aligned with the decoder's frames.

Features of STFT frame j are taken over the same samples [300 j, 300 j + 1200) that the decoder's frame j writes. Knows no tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchaudio.functional import melscale_fbanks

from models.codec.blocks import ConvNeXtBlock, TimeConv, check_sizes
from models.codec.source import HOP, SAMPLE_RATE, WINDOW

MEL_BANDS = 100
LONG_WINDOW = 2400  # resolves the harmonics of a low voice
LOW_BINS = 120  # of the long window: 0 .. 1190 Hz in steps of 10 Hz


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """Sizes of the encoder."""

    width: int = 256
    fast_blocks: int = 4  # at 80 Hz
    slow_blocks: int = 2  # at 40 Hz

    def __post_init__(self) -> None:
        check_sizes(self, ("width", "fast_blocks", "slow_blocks"))


class Features(nn.Module):
    """PCM [B, 300 J] -> [B, J, MEL_BANDS + LOW_BINS]: log-mel and the log magnitude of the lowest linear bins."""

    window: Tensor
    long_window: Tensor
    filters: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(WINDOW), persistent=False)
        self.register_buffer("long_window", torch.hann_window(LONG_WINDOW), persistent=False)
        filters = melscale_fbanks(WINDOW // 2 + 1, 0.0, SAMPLE_RATE / 2, MEL_BANDS, SAMPLE_RATE)
        self.register_buffer("filters", filters, persistent=False)  # [601, MEL_BANDS]

    def forward(self, pcm: Tensor) -> Tensor:
        extra = (LONG_WINDOW - WINDOW) // 2
        padded = F.pad(pcm.float(), (extra, WINDOW - HOP + extra))
        long = torch.stft(padded, LONG_WINDOW, HOP, window=self.long_window, center=False, return_complex=True)
        short = torch.stft(
            padded[:, extra : padded.shape[1] - extra],
            WINDOW,
            HOP,
            window=self.window,
            center=False,
            return_complex=True,
        )
        mel = short.abs().transpose(1, 2) @ self.filters  # [B, J, MEL_BANDS]
        low = long[:, :LOW_BINS].abs().transpose(1, 2)
        return torch.cat([mel.clamp(min=1e-4).log(), low.clamp(min=1e-3).log()], dim=-1)


class Encoder(nn.Module):
    """PCM [B, 600 F] -> frames [B, F, width]."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.features = Features()
        self.enter = TimeConv(MEL_BANDS + LOW_BINS, config.width, 7, causal=False)
        self.fast = nn.ModuleList(ConvNeXtBlock(config.width, causal=False) for _ in range(config.fast_blocks))
        self.down = nn.Linear(2 * config.width, config.width)
        self.slow = nn.ModuleList(ConvNeXtBlock(config.width, causal=False) for _ in range(config.slow_blocks))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, pcm: Tensor) -> Tensor:
        x, _ = self.enter(self.features(pcm) / 4)
        for block in self.fast:
            x, _ = block(x)
        x = self.down(x.reshape(x.shape[0], -1, 2 * self.config.width))
        for block in self.slow:
            x, _ = block(x)
        normed: Tensor = self.norm(x)
        return normed
