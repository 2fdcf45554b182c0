"""Packed layers: the same products, of the weights as they are now."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from models.linear import Linear, RmsNorm, can_halve, step_dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(384, 640), (64, 34), (7, 5)])
def test_step_equals_a_plain_product(sizes: tuple[int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    layer = Linear(*sizes).to(dtype)
    layer.pack()
    for rows in (1, 3, 16, 40):
        x = torch.randn(rows, sizes[0], dtype=step_dtype(layer.weight))
        exact = x.double() @ layer.weight.detach().double().T
        tolerance = 1e-5 if step_dtype(layer.weight) == torch.float32 else 3e-2
        torch.testing.assert_close(layer.step(x).double(), exact, atol=tolerance, rtol=0)


def test_small_bfloat16_weights_keep_their_value() -> None:
    """They are held in float16, whose range is smaller; what is lost lies far below a bfloat16's own rounding."""
    layer = Linear(64, 8).to(torch.bfloat16)
    if not can_halve(layer.weight):
        pytest.skip("bfloat16 is not packed on this machine")
    with torch.no_grad():
        layer.weight.copy_(torch.logspace(-12, 2, 512).view(8, 64))
    layer.pack()
    got = layer.step(torch.eye(64))
    torch.testing.assert_close(got, layer.weight.detach().float().T, atol=3e-8, rtol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_changed_weight_is_packed_again(dtype: torch.dtype) -> None:
    layer, norm = Linear(32, 16).to(dtype), RmsNorm(32).to(dtype)
    x = torch.randn(3, 32, dtype=step_dtype(layer.weight))
    for made in (layer, norm):
        made.pack()
        before = made.step(x)
        with torch.no_grad():
            made.weight.mul_(2)
        made.pack()
        torch.testing.assert_close(made.step(x), 2 * before)
        made.load_state_dict({"weight": torch.zeros_like(made.weight)})
        made.pack()
        assert not made.step(x).any()


@pytest.mark.parametrize("scale", [1e-4, 0.02, 1.0, 100.0])
def test_norm_step_equals_forward(scale: float) -> None:
    """Also where the epsilon decides."""
    norm = RmsNorm(48)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2)
    norm.pack()
    x = scale * torch.randn(5, 48)
    with torch.no_grad():
        torch.testing.assert_close(norm.step(x), norm(x), atol=0, rtol=1e-5)


def test_packed_layers_can_be_copied_and_pickled() -> None:
    for layer in (Linear(8, 4), Linear(8, 4).to(torch.bfloat16), RmsNorm(8)):
        layer.pack()
        for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert torch.equal(twin.weight, layer.weight)
            twin.pack()
            x = torch.randn(2, 8, dtype=step_dtype(layer.weight))
            assert torch.equal(twin.step(x), layer.step(x))
        assert set(layer.state_dict()) == {"weight"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_bias_is_added(dtype: torch.dtype) -> None:
    layer = Linear(16, 8, bias=True).to(dtype)
    layer.pack()
    x = torch.randn(3, 16, dtype=step_dtype(layer.weight))
    with torch.no_grad():
        torch.testing.assert_close(layer.step(x).to(dtype), layer(x.to(dtype)), atol=3e-2, rtol=0)
        torch.testing.assert_close(layer.step(0 * x)[0].to(dtype), layer.bias.detach())
