"""A decoder-only transformer over embeddings: RMSNorm, RoPE, grouped-query sliding-window attention, SwiGLU.

One class serves the target and the drafter. Training runs whole rows; decoding runs a few new positions against a static KV cache
(``models.kv_cache``). Knows embeddings and positions, not tokens. Source: Llama (Touvron et al. 2023), Mistral (Jiang et al. 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.kv_cache import KvCache, PassLayout
from models.rope import rope_table, rotate
from models.transformer_config import TransformerConfig


class Attention(nn.Module):
    """Grouped-query attention with fused QKV."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        kv_width = config.kv_heads * config.head_width
        q_width = config.heads * config.head_width
        self.qkv = nn.Linear(config.width, q_width + 2 * kv_width, bias=config.qkv_bias)
        self.out = nn.Linear(q_width, config.width, bias=False)
        self.q_norm = nn.RMSNorm(config.head_width, config.norm_eps) if config.qk_norm else None
        self.k_norm = nn.RMSNorm(config.head_width, config.norm_eps) if config.qk_norm else None

    def heads(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``x`` [B, T, width] -> rotated q [B, heads, T, hw] and k, v [B, kv_heads, T, hw]."""
        config = self.config
        batch, rows, _ = x.shape
        joined = self.qkv(x).view(batch, rows, config.heads + 2 * config.kv_heads, config.head_width).transpose(1, 2)
        turning = joined[:, : config.heads + config.kv_heads]
        if self.q_norm is not None and self.k_norm is not None:
            turning = torch.cat(
                [self.q_norm(turning[:, : config.heads]), self.k_norm(turning[:, config.heads :])], dim=1
            )
        turned = rotate(turning, cos, sin)
        return turned[:, : config.heads], turned[:, config.heads :], joined[:, config.heads + config.kv_heads :]

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Whole rows: ``x`` [B, T, width]. Blocks of ``window`` queries see their own and the previous block's keys."""
        batch, rows, _ = x.shape
        window = min(self.config.window, rows)
        q, k, v = self.heads(x, cos, sin)
        count = -(-rows // window)
        groups = self.config.heads // self.config.kv_heads

        def blocks(part: Tensor) -> Tensor:
            padded = F.pad(part, (0, 0, 0, count * window - rows))
            return padded.view(batch, part.shape[1], count, window, -1)

        def with_previous(part: Tensor) -> Tensor:
            own = blocks(part)
            before = F.pad(own[:, :, :-1], (0, 0, 0, 0, 1, 0))
            return torch.cat([before, own], dim=3).repeat_interleave(groups, dim=1)  # [B, heads, count, 2 window, hw]

        at = torch.arange(window, device=x.device)
        distance = at[:, None] + window - torch.arange(2 * window, device=x.device)  # [window, 2 window]
        bias = torch.zeros(distance.shape, device=x.device).masked_fill(
            (distance < 0) | (distance >= window), float("-inf")
        )
        first = bias.clone()
        first[:, :window] = float("-inf")  # the first block has none before it
        bias = torch.stack([first, *[bias] * (count - 1)])  # [count, window, 2 window]
        scores = blocks(q) @ with_previous(k).transpose(3, 4)
        weights = (scores * self.config.head_width**-0.5 + bias.to(scores.dtype)).softmax(-1)
        y = (weights.to(v.dtype) @ with_previous(v)).reshape(batch, self.config.heads, count * window, -1)[:, :, :rows]
        merged: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return merged

    def step(self, x: Tensor, layer: int, cache: KvCache, layout: PassLayout) -> Tensor:
        """New positions only: ``x`` [N, width]; writes their keys and values into ``cache`` and reads all visible ones."""
        config = self.config
        kv_heads, head_width = config.kv_heads, config.head_width
        joined = self.qkv(x).view(-1, config.heads + 2 * kv_heads, head_width)
        turning = joined.narrow(1, 0, config.heads + kv_heads)
        if self.q_norm is not None and self.k_norm is not None:
            for norm, part in zip((self.q_norm, self.k_norm), turning.split([config.heads, kv_heads], 1), strict=True):
                part.copy_(norm(part))
        torch.addcmul(turning * layout.cos, turning.roll(head_width // 2, -1), layout.sin, out=turning)
        kv = joined.narrow(1, config.heads, 2 * kv_heads).view(-1, 2, kv_heads, head_width)
        keys, values = cache.write(layer, kv, layout)  # [B, kv_heads, capacity, hw] each
        q = joined.narrow(1, 0, config.heads)
        if layout.spread is not None:
            q = q.index_select(0, layout.spread)
        # Queries of one kv head side by side: position by position, its group of heads inside.
        batch, rows = keys.shape[0], layout.rows
        q = q.reshape(batch, rows, kv_heads, -1, head_width).transpose(1, 2).reshape(batch, kv_heads, -1, head_width)
        count, padding = q.shape[2], layout.mask.shape[2] - q.shape[2]
        if padding:
            q = F.pad(q, (0, 0, 0, padding))
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=layout.mask).narrow(2, 0, count)
        y = y.reshape(batch, kv_heads, rows, -1, head_width).transpose(1, 2).reshape(batch * rows, -1)
        if layout.gather is not None:
            y = y.index_select(0, layout.gather)
        merged: Tensor = self.out(y)
        return merged


class Block(nn.Module):
    """Attention and MLP, each after RMSNorm and added to the residual."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, config.norm_eps)
        self.attention = Attention(config)
        self.mlp_norm = nn.RMSNorm(config.width, config.norm_eps)
        self.gate_up = nn.Linear(config.width, 2 * config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def mlp(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        y: Tensor = self.down(F.silu(gate) * up)
        return y

    def step(self, x: Tensor, layer: int, cache: KvCache, layout: PassLayout) -> Tensor:
        """New positions only: ``x`` [N, width] -> the same."""
        x = x + self.attention.step(self.attention_norm(x), layer, cache, layout)
        return x + self.mlp(x)


class Transformer(nn.Module):
    """Embeddings [B, T, width] -> hidden states [B, T, width]."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width, config.norm_eps)
        for name, parameter in self.named_parameters():
            if name.endswith(("out.weight", "down.weight")):
                nn.init.normal_(parameter, std=0.02 / (2 * config.layers) ** 0.5)
            elif name.endswith(("qkv.weight", "gate_up.weight")):
                nn.init.normal_(parameter, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Whole rows from position 0, sliding-window causal."""
        return self.states(x, ())[0]

    def states(self, x: Tensor, taps: Sequence[int]) -> tuple[Tensor, list[Tensor]]:
        """``forward``, and the residual [B, T, width] after each number of layers in ``taps``."""
        rows = x.shape[1]
        positions = torch.arange(rows, device=x.device)
        cos, sin = rope_table(positions, self.config.head_width, self.config.rope_base)
        residuals = []
        for block in self.layers:
            x = x + block.attention(block.attention_norm(x), cos, sin)
            x = x + block.mlp(x)
            residuals.append(x)
        normed: Tensor = self.norm(x)
        return normed, [residuals[tap - 1] for tap in taps]

    @property
    def layers(self) -> list[Block]:
        """The blocks, typed."""
        return cast(list[Block], list(self.blocks))

    @torch.inference_mode()
    def step(
        self,
        x: Tensor,
        cache: KvCache,
        counts: Sequence[int],
        parents: Sequence[int] | None = None,
        taps: Sequence[int] = (),
        layers: int | None = None,
    ) -> Tensor:
        """New positions after the cache's lengths -> [N, taps + 1, width]: residuals, and hidden states last. On a CPU
        ``models.packed`` does the same faster.

        Args:
            x: [N, width], ``counts[s]`` positions of each slot s one after another; N is their sum.
            cache: its lengths move on by ``counts`` (``rewind`` rolls back); like ``x`` in dtype and device.
            counts: 0 to MAX_ROWS for each slot; slots past the end of ``counts`` have none.
            parents: of a tree: for every position the row before it in its path, counted within its slot, -1 for the committed ones; a
                position comes after its parent. None = a chain. Siblings share a position in the stream.
            taps: numbers of layers after which the residual is returned too.
            layers: only so many are run, and their residual is last.
        """
        layout = cache.layout(counts, parents)
        residuals = []
        for index, block in enumerate(self.layers[:layers]):
            x = block.step(x, index, cache, layout)
            residuals.append(x)
        cache.advance(counts)
        last = self.norm(x) if layers is None else x
        return torch.stack([*(residuals[tap - 1] for tap in taps), last], dim=1)
