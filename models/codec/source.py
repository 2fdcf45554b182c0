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
from torch.nn import functional as F

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
    chirp: Tensor

    def __init__(self) -> None:
        super().__init__()
        window = torch.hann_window(WINDOW, periodic=True)
        self.register_buffer("window", window, persistent=False)
        noise = torch.randn((NOISE_PERIOD + 4) * HOP, generator=torch.Generator().manual_seed(24_000))
        noise[NOISE_PERIOD * HOP :] = noise[: 4 * HOP]
        frames = noise.unfold(0, WINDOW, HOP)[:NOISE_PERIOD]  # [NOISE_PERIOD, WINDOW]
        spectra = torch.view_as_real(torch.fft.rfft(frames * window, dim=-1))
        self.register_buffer("noise", spectra.flatten(1), persistent=False)  # [NOISE_PERIOD, 2 BINS]
        seconds = (torch.arange(WINDOW) - WINDOW / 2) / SAMPLE_RATE  # from the frame's centre
        chirp = torch.stack(
            [seconds, seconds.square() * SAMPLE_RATE / 2]
        )  # cycles per Hz, and per Hz a sample of slope
        self.register_buffer("chirp", chirp, persistent=False)

    def forward(self, f0: Tensor, state: SourceState) -> tuple[Tensor, Tensor, SourceState]:
        """``f0`` [B, J] Hz, 0 = unvoiced -> (pulses, noise: complex [B, J, BINS], new state)."""
        f0 = f0.float()
        before = torch.cat([state.f0[:, None], f0[:, :-1]], dim=1)  # [B, J]
        voiced = f0 > 0
        glides = voiced & (before > 0)
        # float64: the running phase must not drift, and round alike however the stream is cut.
        mean = torch.where(glides, (before.double() + f0) / 2, f0.double())
        phase = (state.phase[:, None] + (mean * (HOP / SAMPLE_RATE)).cumsum(1)).remainder(
            1.0
        )  # [B, J] cycles at the centres
        slope = torch.where(glides, (f0 - before) / HOP, 0.0).clamp(-0.1, 0.1)  # Hz per sample
        pulses = self._pulses(phase.float(), f0, slope, voiced)
        index = (state.frame[:, None] + torch.arange(f0.shape[1], device=f0.device)) % NOISE_PERIOD
        noise = torch.view_as_complex(F.embedding(index, self.noise).view(*index.shape, BINS, 2))
        new_state = SourceState(phase[:, -1], f0[:, -1], state.frame + f0.shape[1])
        return torch.fft.rfft(pulses * self.window, dim=-1), noise, new_state

    def _pulses(self, phase: Tensor, f0: Tensor, slope: Tensor, voiced: Tensor) -> Tensor:
        """Sum of all harmonics below Nyquist with unit power: [B, J, WINDOW]; zero where unvoiced."""
        rise, bend = self.chirp
        cycles = torch.addcmul(torch.addcmul(phase[..., None], f0[..., None], rise), slope[..., None], bend)
        half = math.pi * (cycles - cycles.round())  # within [-pi/2, pi/2]
        half = torch.where(
            half.abs() < 1e-5, 1e-5, half
        )  # 0 / 0 there, and by so little the peak changes by 1e-5 of itself
        count = torch.where(voiced, SAMPLE_RATE / 2 / f0.clamp(min=20.0), 0.0).floor()[..., None]
        dirichlet = torch.sin((2 * count + 1) * half) / torch.sin(half) - 1.0  # 2 x sum of cosines
        return dirichlet * torch.where(count > 0, (2 * count).rsqrt(), 0.0)
