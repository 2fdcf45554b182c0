"""The feature head's compiled steps against its torch form."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from models.feature_head import FeatureConfig, FeatureHead
from models.packed import PackedFeatureHead


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 5e-2)])
def test_packed_equals_torch(dtype: torch.dtype, tolerance: float) -> None:
    torch.manual_seed(1)
    head = FeatureHead(FeatureConfig(48, taps=(1, 2), hidden=80, codebooks=3, codebook_size=40))
    with torch.no_grad():
        for weight in head.parameters():
            weight.normal_(std=weight.shape[1] ** -0.5) if weight.ndim == 2 else weight.uniform_(0.5, 1.5)
    head = head.to(dtype).requires_grad_(False)
    packed = PackedFeatureHead(head)
    sources, inputs = torch.randn(3, 48), torch.randn(5, 48)
    state = head.float().begin(sources)
    fast = packed.begin(sources.numpy())
    for step, x in enumerate(inputs):
        state = head.advance(state, x)
        expected = head.heads[step % 3](head.norm(state))
        got = packed.advance(fast, x.numpy(), step % 3)
        np.testing.assert_allclose(got[: len(expected)], expected.numpy(), atol=tolerance * float(expected.abs().max()))
        assert np.isneginf(got[len(expected) :]).all()


def test_taps_are_layers() -> None:
    with pytest.raises(ValueError, match="taps is"):
        FeatureConfig(48, taps=(0,))
