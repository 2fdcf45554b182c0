"""EnCodec at 24 kHz (Défossez et al. 2022) behind the project's codec interface: 75 frames a second, up to 32 codebooks of 1024.

The architecture is the ``encodec`` package's (MIT licence). The published weights are CC-BY-NC: they are for non-commercial use, are read
from a file the user has, and are neither shipped nor fetched by this project.

The package decodes only whole sounds. Here the decoder keeps a state: the last inputs of every convolution, the tail of every transposed
convolution, the hidden state of the LSTM. One difference is unavoidable: at the very start of a sound the package fills the past of every
convolution by reflection, that is with what comes *after*, which no stream can. Here the first input is repeated instead. So the first
frames differ from the package's own ``decode``, by less and less as the LSTM forgets them; all else is equal.
Knows tokens and samples; knows no text and no language model.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from encodec.model import EncodecModel
from encodec.modules.conv import SConv1d, SConvTranspose1d
from encodec.modules.lstm import SLSTM
from encodec.modules.seanet import SEANetResnetBlock
from torch import Tensor, nn
from torch.nn.utils import remove_weight_norm

from models.codec.codec import Codes, Pcm, check_codes, check_pcm, decode_by_length

CODEBOOKS = (2, 4, 8, 16, 32)  # of the published bandwidths 1.5, 3, 6, 12 and 24 kbit/s


def new_model() -> EncodecModel:
    """The architecture with random weights and empty codebooks."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", FutureWarning
        )  # the package's weight norm is the old one; its weights are stored for it
        return cast(EncodecModel, EncodecModel.encodec_model_24khz(pretrained=False))


@dataclass(slots=True)
class EncodecState:
    """What a batch of streams needs for its next frames."""

    pasts: list[
        Tensor
    ]  # last inputs of each convolution and tail of each transposed one, [B, C, T], in the decoder's order
    hidden: tuple[Tensor, Tensor]  # of the LSTM, [layers, B, C] each
    fresh: Tensor  # [B] true where nothing has been decoded yet

    @classmethod
    def join(cls, states: Sequence[EncodecState]) -> EncodecState:
        """The streams of ``states`` side by side, to be decoded together."""
        return cls(
            [torch.cat(pasts) for pasts in zip(*(state.pasts for state in states), strict=True)],
            (torch.cat([s.hidden[0] for s in states], dim=1), torch.cat([s.hidden[1] for s in states], dim=1)),
            torch.cat([state.fresh for state in states]),
        )

    def split(self) -> list[EncodecState]:
        """The streams one by one; undoes ``join``."""
        hidden = zip(*(part.split(1, dim=1) for part in self.hidden), strict=True)
        pasts = zip(*(past.split(1) for past in self.pasts), strict=True)
        return [
            EncodecState(list(own), (h, c), fresh)
            for own, (h, c), fresh in zip(pasts, hidden, self.fresh.split(1), strict=True)
        ]

    def snapshot(self) -> EncodecState:
        """A copy that later decoding does not touch."""
        hidden, cell = self.hidden
        return EncodecState([past.clone() for past in self.pasts], (hidden.clone(), cell.clone()), self.fresh.clone())

    def reset(self, rows: Tensor) -> None:
        """Set the rows where ``rows`` [B] is true back to the start of a stream."""
        hidden, cell = self.hidden
        self.pasts = [past.masked_fill(rows[:, None, None], 0) for past in self.pasts]
        self.hidden = hidden.masked_fill(rows[:, None], 0), cell.masked_fill(rows[:, None], 0)
        self.fresh = self.fresh | rows


class Encodec24(nn.Module):
    """A ``Codec`` over an EnCodec 24 kHz model, using its first ``codebooks`` codebooks."""

    sample_rate = 24_000
    frame_samples = 320
    codebook_size = 1024
    lookahead_frames = 0

    def __init__(self, model: EncodecModel, codebooks: int = 8) -> None:
        super().__init__()
        if codebooks not in CODEBOOKS:
            raise ValueError(f"codebooks is {codebooks!r}; allowed: {', '.join(map(str, CODEBOOKS))}")
        self.codebooks = codebooks
        self.model = model.eval()
        self.model.set_target_bandwidth(0.75 * codebooks)
        for layer in model.modules():
            if hasattr(layer, "weight_g"):
                remove_weight_norm(layer)  # the weights are final: no need to scale them anew at every step
        self.requires_grad_(False)

    @classmethod
    def load(cls, path: Path, codebooks: int = 8) -> Encodec24:
        """The published checkpoint (``encodec_24khz-d7cc33bc.th``) or any of its form; raises ValueError when it is of another."""
        model = new_model()
        try:
            model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        except (RuntimeError, TypeError, AttributeError, EOFError, pickle.UnpicklingError) as error:
            raise ValueError(f"{path} is not a checkpoint of EnCodec 24 kHz: {error}") from error
        return cls(model, codebooks)

    @torch.inference_mode()
    def encode(self, pcm: Tensor) -> Tensor:
        """See ``Codec.encode``."""
        check_pcm(pcm, self.frame_samples)
        ((codes, _),) = self.model.encode(pcm[:, None])
        return codes

    @torch.inference_mode()
    def decode(self, codes: Tensor) -> Tensor:
        """See ``Codec.decode``."""
        return self.decode_step(codes, self.initial_state(codes.shape[0]))

    def initial_state(self, batch: int) -> EncodecState:
        """See ``Codec.initial_state``."""
        pasts = []
        hidden = torch.empty(0)
        for layer in self.model.decoder.modules():
            if isinstance(layer, SConv1d):
                conv = _conv_of(layer)
                pasts.append(
                    conv.weight.new_zeros(batch, conv.in_channels, (conv.kernel_size[0] - 1) * conv.dilation[0])
                )
            elif isinstance(layer, SConvTranspose1d):
                transposed = _transposed_of(layer)
                tail = transposed.kernel_size[0] - transposed.stride[0]
                pasts.append(transposed.weight.new_zeros(batch, transposed.out_channels, tail))
            elif isinstance(layer, SLSTM):
                weight = layer.lstm.all_weights[0][0]
                hidden = weight.new_zeros(layer.lstm.num_layers, batch, layer.lstm.hidden_size)
        return EncodecState(pasts, (hidden, hidden), torch.ones(batch, dtype=torch.bool, device=hidden.device))

    @torch.inference_mode()
    def decode_step(self, codes: Tensor, state: EncodecState) -> Tensor:
        """See ``Codec.decode_step``."""
        check_codes(codes, self.codebooks, self.codebook_size, state.fresh.shape[0])
        step = _Step(state)
        pcm = step.run(self.model.decoder.model, self.model.quantizer.decode(codes.transpose(0, 1)))  # [B, 1, 320 F]
        state.pasts, state.hidden, state.fresh = step.pasts, step.hidden, torch.zeros_like(state.fresh)
        return pcm[:, 0]

    def decode_streams(self, codes: Sequence[Codes], states: Sequence[EncodecState]) -> list[Pcm]:
        """See ``Codec.decode_streams``."""
        return decode_by_length(self, codes, states, states[0].fresh.device)


def _conv_of(layer: SConv1d) -> nn.Conv1d:
    return cast(nn.Conv1d, layer.conv.conv)


def _transposed_of(layer: SConvTranspose1d) -> nn.ConvTranspose1d:
    return cast(nn.ConvTranspose1d, layer.convtr.convtr)


class _Step:
    """One pass of some frames through the package's layers, taking their pasts one by one and keeping the new ones."""

    def __init__(self, state: EncodecState) -> None:
        self.hidden = state.hidden
        self.pasts: list[Tensor] = []
        self._old = iter(state.pasts)
        self._fresh = state.fresh[:, None, None] if state.fresh.any() else None

    def run(self, layer: nn.Module, x: Tensor) -> Tensor:
        """``x`` [B, C, T] -> [B, C', T'], layers in the order of ``modules()``."""
        match layer:
            case nn.Sequential():
                for part in layer:
                    x = self.run(part, x)
                return x
            case SEANetResnetBlock():
                return self.run(layer.block, x) + self.run(layer.shortcut, x)
            case SConv1d():
                return self._conv(_conv_of(layer), x)
            case SConvTranspose1d():
                return self._transposed(_transposed_of(layer), x)
            case SLSTM():
                steps = x.permute(2, 0, 1)
                y, self.hidden = layer.lstm(steps, self.hidden)
                return cast(Tensor, y + steps).permute(1, 2, 0)
            case _:  # an activation
                return cast(Tensor, layer(x))

    def _conv(self, conv: nn.Conv1d, x: Tensor) -> Tensor:
        past = next(self._old)
        if self._fresh is not None:
            past = torch.where(self._fresh, x[..., :1], past)
        x = torch.cat([past, x], dim=-1)
        self.pasts.append(x[..., x.shape[-1] - past.shape[-1] :])
        y: Tensor = conv(x)
        return y

    def _transposed(self, conv: nn.ConvTranspose1d, x: Tensor) -> Tensor:
        tail = next(self._old)
        y: Tensor = conv(x)
        y[..., : tail.shape[-1]] += tail
        final = x.shape[-1] * conv.stride[0]
        assert conv.bias is not None
        self.pasts.append(y[..., final:] - conv.bias[:, None])  # the next call adds the bias again
        return y[..., :final]
