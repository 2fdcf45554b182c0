"""Discriminators of the codec's second phase: small STFT ones at three resolutions and period ones at 2, 3, 5, 7.

Know waveforms only. Sources: Défossez et al. 2022 (EnCodec, MS-STFT), Kong et al. 2020 (HiFi-GAN, periods); complex input compressed
in magnitude and strided in frequency at once, which is most of the saving.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

PERIODS = (2, 3, 5, 7)
WINDOWS = (2048, 1024, 512)
SLOPE = 0.1
COMPRESSION = 0.3


def _conv(inputs: int, outputs: int, kernel: tuple[int, int], stride: tuple[int, int]) -> nn.Module:
    padding = (kernel[0] // 2, kernel[1] // 2)
    made: nn.Module = weight_norm(nn.Conv2d(inputs, outputs, kernel, stride, padding))
    return made


class _Stack(nn.Module):
    """Convolutions with leaky ReLU between them; returns the score map and every layer's features."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        features = []
        x = x.contiguous(memory_format=torch.channels_last)
        for layer in self.layers[:-1]:
            x = F.leaky_relu(layer(x), SLOPE)
            features.append(x)
        return self.layers[-1](x), features


class StftDiscriminator(nn.Module):
    """[B, N] -> score map over time and frequency of the complex spectrogram."""

    window: Tensor

    def __init__(self, size: int, width: int = 16) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("window", torch.hann_window(size), persistent=False)
        self.stack = _Stack(
            [
                _conv(2, width, (3, 9), (1, 4)),
                _conv(width, width, (3, 9), (1, 2)),
                _conv(width, width, (3, 9), (2, 2)),
                _conv(width, width, (3, 3), (1, 1)),
                _conv(width, 1, (3, 3), (1, 1)),
            ]
        )

    def forward(self, pcm: Tensor) -> tuple[Tensor, list[Tensor]]:
        spectrum = torch.stft(pcm.float(), self.size, self.size // 4, window=self.window, return_complex=True)
        parts = torch.view_as_real(spectrum / self.window.sum().sqrt())
        power = parts.square().sum(-1, keepdim=True) + 1e-8
        compressed = parts * power ** ((COMPRESSION - 1) / 2)  # [B, bins, T, 2]
        score, features = self.stack(compressed.permute(0, 3, 2, 1))
        return score, features


class PeriodDiscriminator(nn.Module):
    """[B, N] -> score map; samples a period apart stand in one column."""

    def __init__(self, period: int, widths: tuple[int, ...] = (16, 32, 64, 64)) -> None:
        super().__init__()
        self.period = period
        channels = (1, *widths)
        layers = [_conv(channels[i], channels[i + 1], (5, 1), (3, 1)) for i in range(len(widths))]
        self.stack = _Stack([*layers, _conv(widths[-1], 1, (3, 1), (1, 1))])

    def forward(self, pcm: Tensor) -> tuple[Tensor, list[Tensor]]:
        batch, length = pcm.shape
        whole = length // self.period * self.period
        score, features = self.stack(pcm[:, :whole].view(batch, 1, -1, self.period))
        return score, features


class Discriminators(nn.Module):
    """All of them."""

    def __init__(self) -> None:
        super().__init__()
        self.members = nn.ModuleList([StftDiscriminator(size) for size in WINDOWS])
        self.members.extend(PeriodDiscriminator(period) for period in PERIODS)

    def forward(self, pcm: Tensor) -> list[tuple[Tensor, list[Tensor]]]:
        return [member(pcm) for member in self.members]


def discriminator_loss(made: list[tuple[Tensor, list[Tensor]]], real: list[tuple[Tensor, list[Tensor]]]) -> Tensor:
    """Least squares (Mao et al. 2017), mean over the members."""
    losses = [
        fake.float().square().mean() + (1 - true.float()).square().mean()
        for (fake, _), (true, _) in zip(made, real, strict=True)
    ]
    return torch.stack(losses).mean()


def generator_losses(
    made: list[tuple[Tensor, list[Tensor]]], real: list[tuple[Tensor, list[Tensor]]]
) -> tuple[Tensor, Tensor]:
    """(adversarial, feature matching relative to the features' own size), means over the members."""
    adversarial = torch.stack([(1 - score.float()).square().mean() for score, _ in made]).mean()
    matching = [
        (a.float() - b.float().detach()).abs().mean() / b.float().detach().abs().mean().clamp(min=1e-4)
        for (_, fake), (_, true) in zip(made, real, strict=True)
        for a, b in zip(fake, true, strict=True)
    ]
    return adversarial, torch.stack(matching).mean()
