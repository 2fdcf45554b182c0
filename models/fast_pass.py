"""A decoding pass on the CPU in float32 by compiled kernels: what ``Transformer.step`` does there, with a third of the calls.

Knows blocks and the cache; knows no tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor

from models.kernels import add_and_norm, attention, rotate_and_store, swiglu
from models.kv_cache import KvCache

if TYPE_CHECKING:
    from models.transformer import Block, Transformer


def can_run(transformer: Transformer, x: Tensor) -> bool:
    """Whether the kernels know this model and this machine."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and not transformer.config.qk_norm


def fast_step(transformer: Transformer, x: Tensor, cache: KvCache, counts: Sequence[int]) -> Tensor:
    """See ``Transformer.step``; without gradient."""
    config = transformer.config
    layout = cache.flat_layout(counts)
    number, head_width = len(layout.positions), config.head_width
    hidden = x.numpy().copy()  # [N, width] the residual
    if len(hidden) != number:
        raise ValueError(f"x has {len(hidden)} rows; counts sum to {number}")
    added = np.zeros_like(hidden)
    normed, attended = torch.empty_like(x), x.new_empty(number, config.heads * head_width)
    normed_array, attended_array = normed.numpy(), attended.numpy()
    inner = x.new_empty(number, config.hidden)
    inner_array = inner.numpy()
    scores = np.empty(config.window, np.float32)
    powers = np.empty(config.window, np.int32)
    eps = np.float32(config.norm_eps)
    attend = attention(head_width)
    for block, store in zip(cast("list[Block]", transformer.blocks), cache.arrays(), strict=True):
        add_and_norm(hidden, added, block.attention_norm.scale, eps, normed_array)
        joined = block.attention.qkv.step(normed).numpy().reshape(number, -1, head_width)
        rotate_and_store(joined, layout.cos, layout.sin, layout.places, store)
        attend(
            joined,
            layout.positions,
            layout.places,
            store,
            cache.capacity,
            config.window,
            scores,
            powers,
            powers.view(np.float32),
            attended_array,
        )
        added = block.attention.out.step(attended).numpy()
        add_and_norm(hidden, added, block.mlp_norm.scale, eps, normed_array)
        swiglu(block.gate_up.step(normed).numpy(), inner_array)
        added = block.down.step(inner).numpy()
    add_and_norm(hidden, added, transformer.norm.scale, eps, normed_array)
    cache.advance(counts)
    return normed
