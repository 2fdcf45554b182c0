"""The language model of the woven stream: phonemes in, codec tokens and ADVANCE/END decisions out. Target and drafter are both this.

One input a position: a codec token, or a phoneme (forced by the script after ADVANCE or END). One decision a position: the token of the
codebook that is due, or at a frame boundary ADVANCE or END. Only the head rows of the due codebook are computed.
Knows ids, not text; knows nothing of sampling, scripts or drafts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from models.packed import PackedHeads, PackedTransformer, can_pack
from models.transformer import Transformer
from models.transformer_config import TransformerConfig

OFFSETS = tuple(range(-1, 7))  # the phonemes around the current one that a phoneme input shows: one back, six ahead
NO_TOKEN = -1  # token of an input that is a phoneme
MAX_COUNT = 40  # frames of one phoneme told apart


@dataclass(frozen=True, slots=True)
class SpeechLmConfig:
    """Sizes of the vocabulary and of the transformer."""

    symbols: int
    voices: int
    codebooks: int = 4
    codebook_size: int = 1024
    transformer: TransformerConfig = field(default_factory=TransformerConfig)

    def __post_init__(self) -> None:
        for name in ("symbols", "voices", "codebooks", "codebook_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; allowed: a whole number from 1")

    @property
    def advance(self) -> int:
        """Id of ADVANCE: the phoneme is over."""
        return self.codebooks * self.codebook_size

    @property
    def end(self) -> int:
        """Id of END: the sentence is over."""
        return self.advance + 1


class PackedLm:
    """A ``SpeechLm``'s weights for decoding on the CPU."""

    def __init__(self, lm: SpeechLm) -> None:
        self.transformer = PackedTransformer(lm.transformer)
        self.heads = PackedHeads([head.weight for head in cast("list[nn.Linear]", list(lm.heads))])
        self.tokens = lm.tokens.weight.detach().float().numpy()
        self.counts = lm.counts.weight.detach().float().numpy()


class SpeechLm(nn.Module):
    """See the module. Decisions of codebook 0 have ``codebook_size + 2`` logits (the last two ADVANCE, END), others ``codebook_size``."""

    def __init__(self, config: SpeechLmConfig) -> None:
        super().__init__()
        self._packed: tuple[object, PackedLm] | None = None
        self.config = config
        width = config.transformer.width
        self.tokens = nn.Embedding(config.codebooks * config.codebook_size, width)
        self.around = nn.Embedding(len(OFFSETS) * config.symbols, width)  # one table per offset, for phoneme inputs
        self.beside = nn.Embedding(2 * config.symbols, width)  # current and next phoneme, for codec inputs
        self.counts = nn.Embedding(MAX_COUNT, width)
        self.voices = nn.Embedding(config.voices, width)
        self.speed = nn.Linear(3, width, bias=False)
        self.transformer = Transformer(config.transformer)
        self.heads = nn.ModuleList(
            nn.Linear(width, config.codebook_size + (2 if book == 0 else 0), bias=False)
            for book in range(config.codebooks)
        )
        for table in (self.tokens, self.around, self.beside, self.counts, self.voices, self.speed, *self.heads):
            nn.init.normal_(table.weight, std=0.02)

    def packed(self) -> PackedLm | None:
        """The weights as they are now in the form in which the CPU decodes fastest; None where that is not known."""
        if not can_pack(self.tokens.weight):
            return None
        # Inference tensors have no version, and cannot change.
        source = tuple(
            (weight.data_ptr(), weight.dtype, 0 if weight.is_inference() else weight._version)
            for weight in self.parameters()
        )
        if self._packed is None or self._packed[0] != source:
            self._packed = source, PackedLm(self)
        return self._packed[1]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_packed": None}

    def speaker(self, voice_weights: Tensor, speed: Tensor) -> Tensor:
        """``voice_weights`` [B, voices] (one-hot or a mix), ``speed`` [B] (1 = the teacher's pace) -> [B, width]."""
        log = speed.log2()[:, None]
        features = torch.cat([log, log.square(), log.abs()], dim=-1)
        voice = voice_weights.to(self.voices.weight.dtype) @ self.voices.weight
        speaker: Tensor = voice + self.speed(features.to(voice.dtype))
        return speaker

    def phoneme_vectors(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        """Symbol ids ``windows`` [..., 8], the symbols at OFFSETS (0 = unknown) -> vectors [..., width] of a phoneme input and of the
        codec inputs that follow it."""
        symbols = self.config.symbols
        shift = torch.arange(len(OFFSETS), device=windows.device) * symbols
        entry = self.around(windows + shift).sum(-2)
        current, following = OFFSETS.index(0), OFFSETS.index(1)
        inside = self.beside(windows[..., current]) + self.beside(windows[..., following] + symbols)
        return entry, inside

    def codec_vectors(self, tokens: Tensor, counts: Tensor) -> Tensor:
        """Codec tokens and frame counts in the phoneme (both [...]) -> [..., width], to be added to the phoneme's ``inside`` vector."""
        vectors: Tensor = self.tokens(tokens) + self.counts(counts.clamp(max=MAX_COUNT - 1))
        return vectors
