"""The compiled kernels against torch's own operators."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from models.fast_pass import can_run
from models.kernels import _weights, add_and_norm, swiglu
from models.kv_cache import KvCache
from models.linear import Packed
from models.transformer import Transformer
from models.transformer_config import TransformerConfig


def test_norm_and_swiglu() -> None:
    torch.manual_seed(1)
    x, added, scale = torch.randn(5, 48), torch.randn(5, 48), torch.rand(48)
    expected = torch.nn.functional.rms_norm(x + added, (48,), scale, 1e-5)
    out = np.empty((5, 48), np.float32)
    add_and_norm(x.numpy(), added.numpy(), scale.numpy(), np.float32(1e-5), out)
    np.testing.assert_allclose(out, expected.numpy(), atol=1e-5)
    gate, up = torch.randn(5, 64) * 5, torch.randn(5, 64)
    made = np.empty((5, 64), np.float32)
    swiglu(torch.cat([gate, up], dim=1).numpy(), made)
    np.testing.assert_allclose(made, (torch.nn.functional.silu(gate) * up).numpy(), atol=1e-5)


def test_softmax_weights_over_the_whole_range() -> None:
    scores = np.linspace(-120, 30, 4001, dtype=np.float32)
    powers = np.empty(len(scores), np.int32)
    made = scores.copy()
    total = _weights(made, len(scores), powers, powers.view(np.float32))
    expected = np.exp(scores.astype(np.float64) - 30)
    near = expected > 1e-30
    np.testing.assert_allclose(made[near], expected[near], rtol=1.5e-5)
    assert made[~near].max() < 1e-29
    assert total == pytest.approx(expected.sum(), rel=1e-5)


@pytest.mark.parametrize(("head_dim", "kv_heads"), [(0, 2), (32, 1), (20, 3)])
def test_a_pass_equals_that_of_torch_operators(monkeypatch: pytest.MonkeyPatch, head_dim: int, kv_heads: int) -> None:
    torch.manual_seed(2)
    config = TransformerConfig(
        width=48, layers=3, heads=6, kv_heads=kv_heads, hidden=80, window=24, head_dim=head_dim, qkv_bias=head_dim > 0
    )
    made = Transformer(config)
    with torch.no_grad():
        for weight in made.parameters():
            weight.normal_(std=weight.shape[-1] ** -0.5) if weight.ndim == 2 else weight.uniform_(0.5, 1.5)
    for module in made.modules():
        if isinstance(module, Packed):
            module.pack()
    x = torch.randn(3, 150, 48)
    caches = [KvCache(config, 3, torch.float32) for _ in range(2)]
    generator = torch.Generator().manual_seed(3)
    assert can_run(made, x)
    while min(caches[0].lengths) < 120:
        counts = [int(c) for c in torch.randint(0, 11, (3,), generator=generator)]
        if not any(counts):
            continue
        starts = list(caches[0].lengths)
        rows = torch.cat([x[s, at : at + count] for s, (at, count) in enumerate(zip(starts, counts, strict=True))])
        counts = [min(count, 150 - at) for at, count in zip(starts, counts, strict=True)]
        fast = made.step(rows, caches[0], counts)
        with monkeypatch.context() as patch:
            patch.setattr("models.transformer.can_run", lambda *_: False)
            slow = made.step(rows, caches[1], counts)
        torch.testing.assert_close(fast, slow, atol=2e-5, rtol=1e-4)
        for cache in caches:
            for slot in range(3):
                if cache.lengths[slot] >= 140:
                    cache.rewind(slot, 0)
    torch.testing.assert_close(caches[0].store, caches[1].store, atol=2e-5, rtol=1e-4)
