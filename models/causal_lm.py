"""A plain language model over one vocabulary: token in, logits of the next token out. What public text-like checkpoints are.

Knows ids and the transformer; knows no text, no sampling and no files.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from models.kv_cache import KvCache
from models.packed import PackedCache, PackedMatrix, PackedTransformer, can_pack
from models.transformer import Transformer
from models.transformer_config import TransformerConfig


class CausalLm(nn.Module):
    """Embedding, transformer, head; ``tied`` = the head is the embedding."""

    def __init__(self, config: TransformerConfig, vocabulary: int, *, tied: bool = False) -> None:
        super().__init__()
        self._packed: tuple[PackedTransformer, PackedMatrix] | None = None
        self.config = config
        self.tied = tied
        self.tokens = nn.Embedding(vocabulary, config.width)
        self.transformer = Transformer(config)
        self.head = nn.Linear(config.width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Whole rows: ids [B, T] -> logits [B, T, vocabulary]."""
        logits: Tensor = self.head(self.transformer(self.tokens(ids)))
        return logits

    def pack(self) -> None:
        """Make decoding fast, with the weights as they are now, where the kernels know them."""
        if can_pack(self.tokens.weight):
            self._packed = PackedTransformer(self.transformer), PackedMatrix(self.head.weight)

    def cache(self, slots: int = 1) -> KvCache | PackedCache:
        """An empty cache for ``slots`` streams."""
        if self._packed is not None:
            return self._packed[0].cache(slots)
        return KvCache(self.config, slots, self.tokens.weight.dtype, self.tokens.weight.device)

    @torch.inference_mode()
    def hidden(
        self,
        ids: Sequence[int],
        cache: KvCache | PackedCache,
        counts: Sequence[int] | None = None,
        parents: Sequence[int] | None = None,
    ) -> Tensor:
        """Hidden states [N, width] of new positions; the rest as in ``Transformer.step``, ``counts`` by default all in slot 0."""
        x = self.tokens.weight[torch.tensor(ids, device=self.tokens.weight.device)]
        counts = counts if counts is not None else [len(ids)]
        if isinstance(cache, PackedCache):
            assert self._packed is not None
            return torch.from_numpy(self._packed[0].step(x.float().numpy(), cache, counts, parents)[:, -1])
        return self.transformer.step(x, cache, counts, parents)[:, -1]

    @torch.inference_mode()
    def step(self, ids: Sequence[int], cache: KvCache | PackedCache, counts: Sequence[int] | None = None) -> Tensor:
        """Logits [N, vocabulary] of new positions; see ``hidden``."""
        hidden = self.hidden(ids, cache, counts)
        if self._packed is not None and isinstance(cache, PackedCache):
            return torch.from_numpy(self._packed[1](np.ascontiguousarray(hidden.numpy())))
        logits: Tensor = self.head(hidden)
        return logits
