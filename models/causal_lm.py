"""A plain language model over one vocabulary: token in, logits of the next token out. What public text-like checkpoints are.

Knows ids and the transformer; knows no text, no sampling and no files.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from models.kv_cache import KvCache
from models.linear import Linear, Packed, step_dtype
from models.transformer import Transformer
from models.transformer_config import TransformerConfig


class CausalLm(nn.Module):
    """Embedding, transformer, head; ``tied`` = the head is the embedding."""

    def __init__(self, config: TransformerConfig, vocabulary: int, *, tied: bool = False) -> None:
        super().__init__()
        self.config = config
        self.tied = tied
        self.tokens = nn.Embedding(vocabulary, config.width)
        self.transformer = Transformer(config)
        self.head = Linear(config.width, vocabulary)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Whole rows: ids [B, T] -> logits [B, T, vocabulary]."""
        logits: Tensor = self.head(self.transformer(self.tokens(ids)))
        return logits

    def pack(self) -> None:
        """Make decoding fast: pack every layer."""
        for module in self.modules():
            if isinstance(module, Packed):
                module.pack()

    def cache(self, slots: int = 1) -> KvCache:
        """An empty cache for ``slots`` streams."""
        return KvCache(self.config, slots, step_dtype(self.tokens.weight), self.tokens.weight.device)

    @torch.inference_mode()
    def hidden(self, ids: Sequence[int], cache: KvCache, counts: Sequence[int] | None = None) -> Tensor:
        """Hidden states [N, width] of new positions; ``counts`` as in ``Transformer.step``, default: all in slot 0. Must be packed."""
        index = torch.tensor(ids, device=self.tokens.weight.device)
        x = self.tokens.weight[index].to(step_dtype(self.tokens.weight))
        return self.transformer.step(x, cache, counts if counts is not None else [len(ids)])

    @torch.inference_mode()
    def step(self, ids: Sequence[int], cache: KvCache, counts: Sequence[int] | None = None) -> Tensor:
        """Logits [N, vocabulary] of new positions; see ``hidden``."""
        return self.head.step(self.hidden(ids, cache, counts))
