"""The harmonic source: harmonics where they belong, silence where unvoiced, a phase that does not drift, any cutting alike."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models.codec.source import BINS, HOP, NOISE_PERIOD, SAMPLE_RATE, WINDOW, HarmonicSource, SourceState

BIN_HZ = SAMPLE_RATE / WINDOW


@pytest.fixture(scope="module")
def source() -> HarmonicSource:
    return HarmonicSource()


def run(source: HarmonicSource, f0: Tensor, cuts: list[int] | None = None) -> tuple[Tensor, Tensor, SourceState]:
    state = SourceState.initial(f0.shape[0], "cpu")
    pulses, noises = [], []
    for part in f0.split(cuts or f0.shape[1], dim=1):
        pulse, noise, state = source(part, state)
        pulses.append(pulse)
        noises.append(noise)
    return torch.cat(pulses, dim=1), torch.cat(noises, dim=1), state


def overlap_add(spectra: Tensor) -> Tensor:
    """[J, BINS] -> samples from the first that all four frames cover."""
    window = torch.hann_window(WINDOW, dtype=torch.double) / 1.5
    frames = torch.fft.irfft(spectra.to(torch.cdouble), n=WINDOW, dim=-1) * window
    pcm = torch.zeros(HOP * (len(frames) - 1) + WINDOW, dtype=torch.double)
    for index, frame in enumerate(frames):
        pcm[HOP * index : HOP * index + WINDOW] += frame
    return pcm[WINDOW - HOP : HOP * len(frames)]


@pytest.mark.parametrize("f0", [50.0, 103.7, 240.0, 611.0, 5000.0])
def test_steady_pitch_is_the_sum_of_all_harmonics(source: HarmonicSource, f0: float) -> None:
    """Against cosines added up in float64, so frames also agree where they overlap."""
    pulses, _, _ = run(source, torch.full((1, 40), f0))
    pcm = overlap_add(pulses[0])
    count = int(SAMPLE_RATE / 2 / f0)
    # Frame 0 is centred on sample WINDOW / 2, one step of the phase after the start.
    cycles = f0 * (torch.arange(len(pcm), dtype=torch.double) + (WINDOW - HOP) - WINDOW / 2 + HOP) / SAMPLE_RATE
    harmonics = torch.arange(1, count + 1, dtype=torch.double)
    wanted = torch.cos(2 * torch.pi * cycles[:, None] * harmonics).sum(1) * (2 / count) ** 0.5
    assert (pcm - wanted).abs().max() < 2e-3 * wanted.abs().max()
    assert 0.9 < pcm.square().mean() < 1.1


@pytest.mark.parametrize("f0", [120.0, 300.0, 620.0])
def test_energy_lies_at_multiples_of_f0(source: HarmonicSource, f0: float) -> None:
    pulses, _, _ = run(source, torch.full((1, 8), f0))
    energy = pulses[0, 4].abs().square()
    distance = (torch.arange(BINS) * BIN_HZ / f0).sub(0.5).remainder(1.0).sub(0.5).abs() * f0 / BIN_HZ  # bins
    near = distance <= 2.0  # the main lobe of the window
    near[: int(f0 / BIN_HZ / 2)] = False  # nothing at zero
    assert near.float().mean() < 0.9
    assert energy[near].sum() / energy.sum() > 0.999


def test_unvoiced_frames_have_noise_and_no_pulses(source: HarmonicSource) -> None:
    f0 = torch.tensor([[0.0, 0.0, 150.0, 0.0, 0.0]])
    pulses, noise, _ = run(source, f0)
    silent = f0[0] == 0
    assert pulses[0, silent].abs().max() == 0
    assert pulses[0, ~silent].abs().max() > 1
    assert noise.abs().square().mean(dim=-1).min() > 100


@given(
    st.lists(
        st.sampled_from([0.0, 1e-3, 1.0, 19.9, 20.0, 39.0, 630.0, 11_999.0, 12_000.0, 12_001.0, 24_000.0, 1e6]),
        min_size=1,
    )
)
@settings(deadline=None, max_examples=40)
def test_extreme_pitch_stays_finite(source: HarmonicSource, f0: list[float]) -> None:
    pulses, _, state = run(source, torch.tensor([f0]))
    assert torch.view_as_real(pulses).isfinite().all()
    assert state.phase.isfinite().all()
    above = torch.tensor([f0]) > SAMPLE_RATE / 2
    assert not above.any() or pulses[above].abs().max() == 0


@given(cuts=st.lists(st.integers(1, 9), min_size=1, max_size=8), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_any_cutting_gives_the_same_frames(source: HarmonicSource, cuts: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    f0 = torch.rand(2, sum(cuts), generator=generator) * 400 + 40
    f0[torch.rand(2, sum(cuts), generator=generator) < 0.2] = 0
    whole, cut = run(source, f0), run(source, f0, cuts)
    assert (whole[0] - cut[0]).abs().max() < 1e-4 * whole[0].abs().max().clamp(min=1)
    assert torch.equal(whole[1], cut[1])
    assert torch.equal(whole[2].frame, cut[2].frame)


def test_phase_does_not_drift_over_a_long_stream(source: HarmonicSource) -> None:
    """20,000 frames, 4 minutes, of a gliding voice with pauses, against the same sum in float64."""
    hops = np.arange(20_000)
    f0 = (180 + 90 * np.sin(hops / 37) + 20 * np.sin(hops / 5)).astype(np.float32)
    f0[hops % 400 < 60] = 0
    state = SourceState.initial(1, "cpu")
    phase = 0.0
    worst = 0.0
    before = 0.0
    for start in range(0, len(f0), 100):
        part = f0[start : start + 100]
        _, _, state = source(torch.from_numpy(part)[None], state)
        for now in part.astype(np.float64):
            if now > 0:
                phase += ((before + now) / 2 if before > 0 else now) * HOP / SAMPLE_RATE
            before = now
        error = (float(state.phase) - phase + 0.5) % 1.0 - 0.5
        worst = max(worst, abs(error))
    assert phase > 30_000
    assert worst < 1e-6  # cycles; times 300 harmonics still nothing


def test_noise_does_not_repeat_within_its_period(source: HarmonicSource) -> None:
    _, noise, _ = run(source, torch.zeros(1, NOISE_PERIOD + 3))
    frames = torch.view_as_real(noise[0, :NOISE_PERIOD]).flatten(1)
    frames = frames / frames.norm(dim=1, keepdim=True)
    likeness = (frames @ frames.T).abs()
    index = torch.arange(NOISE_PERIOD)
    apart = (index[:, None] - index).abs()
    apart = torch.minimum(apart, NOISE_PERIOD - apart)
    assert likeness[apart >= WINDOW // HOP].max() < 0.3  # frames that share no sample
    assert torch.equal(noise[0, NOISE_PERIOD:], noise[0, :3])


def test_noise_is_white_and_seamless_across_its_end(source: HarmonicSource) -> None:
    _, noise, _ = run(source, torch.zeros(1, 2 * NOISE_PERIOD))
    pcm = overlap_add(noise[0])
    assert 0.95 < pcm.square().mean() < 1.05
    seam = pcm[HOP * (NOISE_PERIOD - 8) : HOP * (NOISE_PERIOD + 4)].view(-1, HOP).square().mean(1)
    assert seam.min() > 0.6
    assert seam.max() < 1.5
    spectrum = torch.fft.rfft(pcm[: 512 * 128].view(-1, 512)).abs().square().mean(0)[1:-1]
    assert spectrum.max() / spectrum.min() < 4
