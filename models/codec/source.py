"""The harmonic source: frames of a pulse train that follows F0, and of white noise, as spectra.

Frame j of hop 300 covers samples [300 j, 300 j + 1200) of the stream. Within a frame the pulse train is a chirp whose phase at the frame's
centre is the running integral of F0, so neighbouring frames agree where they overlap and no future F0 is needed. All harmonics up to
Nyquist in closed form (Dirichlet kernel). Knows no tokens. Source: harmonic-plus-noise vocoders, e.g. Wang et al. 2019 (NSF).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

SAMPLE_RATE = 24_000
HOP = 300
WINDOW = 1200
BINS = WINDOW // 2 + 1
NOISE_PERIOD = 400  # frames after which the fixed noise repeats: 5 s, far past what the ear links


@dataclass(slots=True)
class SourceState:
    """Where a batch of streams stands."""

    phase: Tensor  # [B] float64, cycles at the last frame's centre
    f0: Tensor  # [B] Hz of the last frame, 0 = unvoiced
    frame: Tensor  # [B] frames so far

    @classmethod
    def initial(cls, batch: int, device: torch.device | str) -> SourceState:
        phase = torch.zeros(batch, dtype=torch.double, device=device)
        return cls(phase, torch.zeros(batch, device=device), torch.zeros(batch, dtype=torch.long, device=device))


class HarmonicSource(nn.Module):
    """F0 -> spectra of excitation frames. Has no trained parameter."""

    window: Tensor
    noise: Tensor
    offsets: Tensor

    def __init__(self) -> None:
        super().__init__()
        window = torch.hann_window(WINDOW, periodic=True)
        self.register_buffer("window", window, persistent=False)
        noise = torch.randn((NOISE_PERIOD + 4) * HOP, generator=torch.Generator().manual_seed(24_000))
        noise[NOISE_PERIOD * HOP :] = noise[: 4 * HOP]
        frames = noise.unfold(0, WINDOW, HOP)[:NOISE_PERIOD]  # [NOISE_PERIOD, WINDOW]
        spectra = torch.view_as_real(torch.fft.rfft(frames * window, dim=-1))
        self.register_buffer("noise", spectra, persistent=False)  # [NOISE_PERIOD, BINS, 2]
        self.register_buffer("offsets", torch.arange(WINDOW) - WINDOW / 2, persistent=False)

    def forward(self, f0: Tensor, state: SourceState) -> tuple[Tensor, Tensor, SourceState]:
        """``f0`` [B, J] Hz, 0 = unvoiced -> (pulses, noise: complex [B, J, BINS], new state)."""
        f0 = f0.float()
        before = torch.cat([state.f0[:, None], f0[:, :-1]], dim=1)  # [B, J]
        glides = (before > 0) & (f0 > 0)
        # float64: the running phase must not drift, and round alike however the stream is cut.
        step = torch.where(glides, (before.double() + f0) / 2, f0.double()) * (
            HOP / SAMPLE_RATE
        )  # cycles between centres
        phase = (state.phase[:, None] + step.cumsum(1)).remainder(1.0)  # [B, J]
        slope = torch.where(glides, (f0 - before) / HOP, 0.0).clamp(-0.1, 0.1)  # Hz per sample
        pulses = self._pulses(phase.float(), f0, slope)
        index = (state.frame[:, None] + torch.arange(f0.shape[1], device=f0.device)) % NOISE_PERIOD
        noise = torch.view_as_complex(self.noise[index])
        new_state = SourceState(phase[:, -1], f0[:, -1], state.frame + f0.shape[1])
        return torch.fft.rfft(pulses * self.window, dim=-1), noise, new_state

    def _pulses(self, phase: Tensor, f0: Tensor, slope: Tensor) -> Tensor:
        """Sum of all harmonics below Nyquist with unit power: [B, J, WINDOW]; zero where unvoiced."""
        offset = self.offsets
        cycles = phase[..., None] + (f0[..., None] + 0.5 * slope[..., None] * offset) * offset / SAMPLE_RATE
        half = math.pi * (cycles - cycles.round())  # within [-pi/2, pi/2]
        count = torch.where(f0 > 0, SAMPLE_RATE / 2 / f0.clamp(min=20.0), 0.0).floor()[..., None]
        sine = torch.sin(half)
        small = sine.abs() < 1e-4
        ratio = torch.sin((2 * count + 1) * half) / torch.where(small, 1.0, sine)
        dirichlet = torch.where(small, 2 * count + 1, ratio) - 1.0  # 2 x sum of cosines
        return dirichlet * torch.where(count > 0, (2 * count).rsqrt(), 0.0)
