"""Losses on spectra: multi-resolution log-mel and log-magnitude L1 (Kumar et al. 2023, DAC; Yamamoto et al. 2020).

Knows waveforms only.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torchaudio.functional import melscale_fbanks

SAMPLE_RATE = 24_000


class SpectralLoss(nn.Module):
    """L1 between log-mel and log-magnitude spectra at several window lengths; both waveforms [B, N] float32."""

    def __init__(
        self, windows: tuple[int, ...] = (256, 512, 1024, 2048), mels: tuple[int, ...] = (20, 40, 80, 160)
    ) -> None:
        super().__init__()
        self.windows = windows
        for window, bands in zip(windows, mels, strict=True):
            self.register_buffer(f"window_{window}", torch.hann_window(window), persistent=False)
            bank = melscale_fbanks(
                window // 2 + 1, 0.0, SAMPLE_RATE / 2, bands, SAMPLE_RATE, norm="slaney", mel_scale="slaney"
            )
            # slaney norm makes bands small; unit sum keeps the floor meaningful at every resolution
            self.register_buffer(f"bank_{window}", bank / bank.sum(0, keepdim=True).clamp(min=1e-8), persistent=False)

    def forward(self, made: Tensor, real: Tensor) -> Tensor:
        loss = made.new_zeros(())
        for size in self.windows:
            window, bank = getattr(self, f"window_{size}"), getattr(self, f"bank_{size}")
            scale = window.square().sum().sqrt()
            both = torch.cat([made, real])
            spectra = torch.stft(both, size, size // 4, window=window, return_complex=True) / scale
            power = torch.view_as_real(spectra).square().sum(-1)  # [2 B, bins, T]
            magnitude = (power + 1e-10).sqrt()
            mel = (magnitude.transpose(1, 2) @ bank + 1e-4).log()
            made_mel, real_mel = mel.chunk(2)
            made_mag, real_mag = (magnitude + 1e-4).log().chunk(2)
            loss = loss + (made_mel - real_mel).abs().mean() + 0.3 * (made_mag - real_mag).abs().mean()
        return loss / len(self.windows)
