"""The causal decoder: quantised frames -> PCM, with a harmonic source, no look-ahead.

Token frame f gives STFT frames 2f and 2f+1; STFT frame j covers samples [300 j, 300 j + 1200); after each STFT frame 300 samples are
final. Everything the next frame needs is in ``DecoderState``; decoding frame by frame gives what decoding at once gives.
Knows quantised vectors, not tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from models.codec.blocks import ConvNeXtBlock, TimeConv, check_sizes
from models.codec.linear import RowLinear
from models.codec.source import BINS, HOP, WINDOW, HarmonicSource, SourceState


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes of the decoder; rates are fixed: 40 Hz frames, 80 Hz STFT frames."""

    input_width: int = 256
    width: int = 384
    slow_blocks: int = 2  # at 40 Hz
    pitch_blocks: int = 2  # at 80 Hz, before the F0 head
    filter_blocks: int = 4  # at 80 Hz, after it
    expansion: int = 3

    def __post_init__(self) -> None:
        check_sizes(self, (item.name for item in fields(self)))


@dataclass(slots=True)
class DecoderState:
    """What one stream's next frame needs: inputs of every causal convolution, the source's phase, the overlap of the last STFT frames."""

    pasts: list[Tensor]  # each [B, kernel - 1, C]
    source: SourceState
    overlap: Tensor  # [B, WINDOW - HOP] samples not yet final

    @classmethod
    def join(cls, states: Sequence[DecoderState]) -> DecoderState:
        """The streams of ``states`` side by side, to be decoded together."""
        sources = [state.source for state in states]
        return cls(
            [torch.cat(pasts) for pasts in zip(*(state.pasts for state in states), strict=True)],
            SourceState(
                torch.cat([source.phase for source in sources]),
                torch.cat([source.f0 for source in sources]),
                torch.cat([source.frame for source in sources]),
            ),
            torch.cat([state.overlap for state in states]),
        )

    def split(self) -> list[DecoderState]:
        """The streams one by one; undoes ``join``."""
        source = self.source
        parts = zip(source.phase.split(1), source.f0.split(1), source.frame.split(1), strict=True)
        return [
            DecoderState(list(pasts), SourceState(*part), overlap)
            for pasts, part, overlap in zip(
                zip(*(past.split(1) for past in self.pasts), strict=True), parts, self.overlap.split(1), strict=True
            )
        ]

    def snapshot(self) -> DecoderState:
        """A copy that later decoding does not touch."""
        source = SourceState(self.source.phase.clone(), self.source.f0.clone(), self.source.frame.clone())
        return DecoderState([past.clone() for past in self.pasts], source, self.overlap.clone())

    def reset(self, rows: Tensor) -> None:
        """Set the rows where ``rows`` [B] is true back to the start of a stream (silence before)."""
        self.pasts = [past.masked_fill(rows[:, None, None], 0) for past in self.pasts]
        self.overlap = self.overlap.masked_fill(rows[:, None], 0)
        source = self.source
        self.source = SourceState(*(part.masked_fill(rows, 0) for part in (source.phase, source.f0, source.frame)))


@dataclass(slots=True)
class DecoderOutput:
    """``pcm`` [B, 600 F]; ``log_f0`` [B, 2 F] log2 Hz and ``voicing`` [B, 2 F] logits as the pitch head sees them."""

    pcm: Tensor
    log_f0: Tensor
    voicing: Tensor


class Decoder(nn.Module):
    """Quantised vectors [B, F, input_width] -> PCM."""

    synthesis_window: Tensor

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        width, expansion = config.width, config.expansion

        def blocks(count: int) -> nn.ModuleList:
            return nn.ModuleList(ConvNeXtBlock(width, causal=True, expansion=expansion) for _ in range(count))

        self.enter = TimeConv(config.input_width, width, 3, causal=True)
        self.slow = blocks(config.slow_blocks)
        self.upsample = RowLinear(width, 2 * width)
        self.pitch = blocks(config.pitch_blocks)
        self.pitch_head = RowLinear(width, 2)  # log2 F0 around 150 Hz, voicing logit
        self.pitch_entry = RowLinear(2, width)
        self.filters = blocks(config.filter_blocks)
        self.norm = nn.LayerNorm(width)
        self.head = RowLinear(width, 3 * BINS)  # log gain and phase of the pulses' filter, log gain of the noise's
        self.source = HarmonicSource()
        window = torch.hann_window(WINDOW, periodic=True) / 1.5  # hann^2 at hop W/4 sums to 1.5
        self.register_buffer("synthesis_window", window, persistent=False)
        nn.init.normal_(self.head.weight, std=0.01)
        with torch.no_grad():  # start near the level of quiet speech
            self.head.bias.copy_(torch.tensor([-3.0, 0.0, -5.0]).repeat_interleave(BINS))

    def initial_state(self, batch: int) -> DecoderState:
        """State before the first frame of ``batch`` streams."""
        weight = self.pitch_head.weight
        pasts = [weight.new_zeros(batch, 2, self.config.input_width)]
        count = self.config.slow_blocks + self.config.pitch_blocks + self.config.filter_blocks
        pasts += [weight.new_zeros(batch, 6, self.config.width) for _ in range(count)]
        overlap = torch.zeros(batch, WINDOW - HOP, device=weight.device)
        return DecoderState(pasts, SourceState.initial(batch, weight.device), overlap)

    def forward(self, x: Tensor, state: DecoderState, f0: Tensor | None = None) -> DecoderOutput:
        """``x`` [B, F, input_width]; ``state`` is moved on; ``f0`` [B, 2 F] Hz overrides the pitch head (training)."""
        pasts = iter(state.pasts)
        new_pasts = []

        def run(blocks: nn.ModuleList, x: Tensor) -> Tensor:
            for block in blocks:
                x, past = block(x, next(pasts))
                new_pasts.append(past)
            return x

        x, past = self.enter(x, next(pasts))
        new_pasts.append(past)
        x = run(self.slow, x)
        x = self.upsample(x).reshape(x.shape[0], -1, self.config.width)  # [B, 2 F, C]
        x = run(self.pitch, x)
        log_f0, voicing = self.pitch_head(x).float().unbind(-1)  # [B, 2 F] each
        log_f0 = log_f0 + 7.23  # log2 of 150 Hz
        if f0 is None:
            # Detached: the gradient through a pulse train is noise; the pitch head learns from its own loss.
            # float64: in float32 the last bit depends on the place in the tensor, and the phase would add it up.
            f0 = torch.where(voicing > 0, torch.exp2(log_f0.double().clamp(5.3, 9.3)), 0.0).float().detach()
        shown = torch.stack([torch.where(f0 > 0, f0.clamp(min=20.0).log2() - 7.23, 0.0), (f0 > 0).float()], dim=-1)
        x = run(self.filters, x + self.pitch_entry(shown.to(x.dtype)))
        pulses, noise, state.source = self.source(f0, state.source)
        filters = self.head(self.norm(x)).float()
        pulse_gain, pulse_phase, noise_gain = filters.chunk(3, dim=-1)  # [B, 2 F, BINS] each
        pulse_filter = torch.polar(pulse_gain.clamp(max=6.0).exp(), pulse_phase)
        spectrum = pulses * pulse_filter + noise * noise_gain.clamp(max=6.0).exp()
        pcm, state.overlap = self._overlap_add(spectrum, state.overlap)
        state.pasts = new_pasts
        return DecoderOutput(pcm, log_f0, voicing)

    def _overlap_add(self, spectrum: Tensor, overlap: Tensor) -> tuple[Tensor, Tensor]:
        """Spectra [B, J, BINS] -> (samples [B, HOP J], overlap [B, WINDOW - HOP])."""
        frames = torch.fft.irfft(spectrum, n=WINDOW, dim=-1) * self.synthesis_window
        batch, count = frames.shape[:2]
        quarters = frames.view(batch, count, WINDOW // HOP, HOP)
        total = frames.new_zeros(batch, count + WINDOW // HOP - 1, HOP)
        total[:, : WINDOW // HOP - 1] = overlap.view(batch, WINDOW // HOP - 1, HOP)
        for part in range(WINDOW // HOP):
            total[:, part : part + count] += quarters[:, :, part]
        return total[:, :count].reshape(batch, -1), total[:, count:].reshape(batch, -1)
