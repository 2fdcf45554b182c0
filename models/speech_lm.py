"""The language model of the woven stream: phonemes in, codec tokens and ADVANCE/END decisions out. Target and drafter are both this.

One input a position: a codec token, or a phoneme (forced by the script after ADVANCE or END). One decision a position: the token of the
codebook that is due, or at a frame boundary ADVANCE or END. Only the head rows of the due codebook are computed.
Knows ids, not text; knows nothing of sampling, scripts or drafts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from models.kernels import norm
from models.packed import PackedHeads, PackedMatrix, PackedTransformer, can_pack
from models.products import Floats
from models.transformer import Transformer
from models.transformer_config import MAY_MISS, TransformerConfig

OFFSETS = tuple(range(-1, 7))  # the phonemes around the current one that a phoneme input shows: one back, six ahead
NO_TOKEN = -1  # token of an input that is a phoneme
MAX_COUNT = 40  # frames of one phoneme told apart
EPS = 1e-5  # of a condition's norms
MAX_AGE = 8  # positions since the states that a condition tells of, told apart


@dataclass(frozen=True, slots=True)
class ConditionConfig:
    """What a drafter sees of the target: its residuals after the layers numbered ``taps`` and its last hidden state."""

    width: int  # of the target
    taps: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.width < 1 or any(tap < 1 for tap in self.taps):
            raise ValueError(f"condition is width {self.width}, taps {self.taps}; allowed: whole numbers from 1")


@dataclass(frozen=True, slots=True)
class SpeechLmConfig:
    """Sizes of the vocabulary and of the transformer."""

    symbols: int
    voices: int
    codebooks: int = 4
    codebook_size: int = 1024
    transformer: TransformerConfig = field(default_factory=TransformerConfig)
    condition: ConditionConfig | None = field(default=None, metadata=MAY_MISS)

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


class PackedCondition:
    """A ``Condition``'s weights for decoding on the CPU."""

    def __init__(self, condition: Condition) -> None:
        scales = [norm.get_parameter("weight").detach().float() for norm in condition.norms]
        self._scales: Floats = torch.stack(scales).numpy()
        self._join = PackedMatrix(condition.join.weight)
        self._ages: Floats = condition.ages.weight.detach().float().numpy()

    def __call__(self, states: Floats, later: int) -> Floats:
        """See ``SpeechLm.told``."""
        normed = np.empty_like(states)
        for part, scale in enumerate(self._scales):
            norm(states[:, part], scale, np.float32(EPS), normed[:, part])
        told = self._join(normed.reshape(len(states), -1))
        ages = self._ages[np.minimum(np.arange(later + 1), MAX_AGE - 1)]
        return np.concatenate([told[:-1] + ages[0], told[-1] + ages])


class PackedLm:
    """A ``SpeechLm``'s weights for decoding on the CPU."""

    def __init__(self, lm: SpeechLm) -> None:
        self.transformer = PackedTransformer(lm.transformer)
        self.heads = PackedHeads([head.weight for head in cast("list[nn.Linear]", list(lm.heads))])
        self.condition = PackedCondition(lm.condition) if lm.condition is not None else None


class Condition(nn.Module):
    """The target's states at one position as a vector to be added to the drafter's inputs after it (after EAGLE-3, Li et al. 2025).

    The input right behind that position has age 0; inputs that were only drafted get the last states known, with their age.
    """

    def __init__(self, config: ConditionConfig, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(config.width, EPS) for _ in range(len(config.taps) + 1))
        self.join = nn.Linear(config.width * len(self.norms), width, bias=False)
        self.ages = nn.Embedding(MAX_AGE, width)
        nn.init.normal_(self.join.weight, std=0.005)
        nn.init.zeros_(self.ages.weight)

    def forward(self, states: Tensor, ages: Tensor) -> Tensor:
        """[..., taps + 1, width of the target], [...] -> [..., width]."""
        joined: Tensor = self.join(torch.cat([norm(states[..., i, :]) for i, norm in enumerate(self.norms)], dim=-1))
        told: Tensor = joined + self.ages(ages.clamp(max=MAX_AGE - 1))
        return told


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
        self.condition: Condition | None = Condition(config.condition, width) if config.condition else None
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

    def packed_heads(self) -> PackedHeads:
        """The heads for the CPU, wherever the model is: drafts from its states are made there."""
        if (packed := self.packed()) is not None:
            return packed.heads
        return PackedHeads([head.get_parameter("weight").detach().cpu() for head in self.heads])

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

    def told(self, states: Floats, later: int) -> Floats:
        """``states`` of the target at n positions [n, taps + 1, its width] -> [n + later, width]: what is added to the inputs right behind
        those positions, and to ``later`` more that know nothing newer. Raises ValueError for a model that takes none."""
        if self.condition is None:
            raise ValueError("this model takes no condition")
        if (packed := self.packed()) is not None and packed.condition is not None:
            return packed.condition(states, later)
        with torch.inference_mode():
            tensor = torch.from_numpy(np.concatenate([states, *[states[-1:]] * later]))
            ages = torch.tensor([0] * len(states) + list(range(1, later + 1)))
            weight = self.tokens.weight
            made = self.condition(tensor.to(weight.device, weight.dtype), ages.to(weight.device))
            told: Floats = made.float().cpu().numpy()
            return told

    def codec_vectors(self, tokens: Tensor, counts: Tensor) -> Tensor:
        """Codec tokens and frame counts in the phoneme (both [...]) -> [..., width], to be added to the phoneme's ``inside`` vector."""
        vectors: Tensor = self.tokens(tokens) + self.counts(counts.clamp(max=MAX_COUNT - 1))
        return vectors
