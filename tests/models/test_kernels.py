"""The compiled kernels against torch's own operators."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from models import vectors
from models.attention import softmax_weights
from models.kernels import add_and_norm, swiglu
from models.kv_cache import KvCache
from models.packed import PackedCache, PackedHeads, PackedMatrix, PackedTransformer, pack
from models.products import Floats, product
from models.transformer import Transformer
from models.transformer_config import TransformerConfig
from tests.speculate.streams import small_lm


def test_norm_and_swiglu() -> None:
    torch.manual_seed(1)
    x, added, scale = torch.randn(5, 48), torch.randn(5, 48), torch.rand(48)
    expected = torch.nn.functional.rms_norm(x + added, (48,), scale, 1e-5)
    out = np.empty((5, 48), np.float32)
    add_and_norm(x.numpy(), added.numpy(), scale.numpy(), np.float32(1e-5), out)
    np.testing.assert_allclose(out, expected.numpy(), atol=1e-5)
    gate, up = torch.randn(5, 64) * 5, torch.randn(5, 64)
    gate[0, :4] = torch.tensor([200.0, -200.0, 0.0, 88.0])
    made = np.empty((5, 64), np.float32)
    swiglu(torch.cat([gate, up], dim=1).numpy(), made)
    np.testing.assert_allclose(made, (torch.nn.functional.silu(gate) * up).numpy(), atol=1e-5, rtol=1e-5)


def test_softmax_weights_over_the_whole_range() -> None:
    scores = np.linspace(-120, 30, 4001, dtype=np.float32)
    powers = np.empty(len(scores), np.int32)
    made = scores.copy()
    total = softmax_weights(made, powers, powers.view(np.float32))
    expected = np.exp(scores.astype(np.float64) - 30)
    near = expected > 1e-30
    np.testing.assert_allclose(made[near], expected[near], rtol=1.5e-5)
    assert made[~near].max() < 1e-29
    assert total == pytest.approx(expected.sum(), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(384, 640), (64, 34), (7, 5)])
def test_a_product_and_that_its_rows_do_not_know_each_other(sizes: tuple[int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    weight = torch.randn(sizes[1], sizes[0]).to(dtype)
    matrix = PackedMatrix(weight)
    x = torch.randn(40, sizes[0])
    exact = x.to(dtype).double() @ weight.double().T
    whole = matrix(x.numpy())
    np.testing.assert_allclose(whole, exact.numpy(), atol=1e-4, rtol=0)
    for rows in range(1, 14):
        assert np.array_equal(matrix(x[rows : 2 * rows].numpy()), whole[rows : 2 * rows])


def test_pairs_without_the_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that cannot multiply bfloat16 pairs gets the same products from float32 ones."""
    import numba

    monkeypatch.setattr(vectors, "_has_bfloat16_dot", lambda: False)
    tile = vectors.product_tile(3, pairs=True)

    @numba.njit  # type: ignore[untyped-decorator]
    def run(x: Floats, w: Floats, out: Floats) -> None:
        tile(x.ctypes.data, x.shape[1] * 4, w.ctypes.data, out.ctypes.data, 256, x.shape[1], w.ctypes.data)

    torch.manual_seed(1)
    x, weight = torch.randn(3, 40).to(torch.bfloat16), torch.randn(64, 40).to(torch.bfloat16)
    out = np.empty((3, 64), np.float32)
    run(x.view(torch.int16).numpy().view(np.uint32), pack(weight)[0], out)
    np.testing.assert_allclose(out, (x.double() @ weight.double().T).numpy(), atol=1e-5)
    out_words = np.empty((3, 64), np.float32)
    product(x.float().numpy(), 40, pack(weight), True, np.empty((3, 20), np.uint32), out_words)
    np.testing.assert_allclose(out, out_words, atol=1e-5)


def random_transformer(config: TransformerConfig, dtype: torch.dtype = torch.float32) -> Transformer:
    torch.manual_seed(2)
    made = Transformer(config)
    with torch.no_grad():
        for weight in made.parameters():
            weight.normal_(std=weight.shape[-1] ** -0.5) if weight.ndim == 2 else weight.uniform_(0.5, 1.5)
    return made.to(dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 3e-5), (torch.bfloat16, 0.1)])
@pytest.mark.parametrize(
    ("head_dim", "kv_heads", "qk_norm"), [(0, 2, False), (32, 1, False), (20, 3, True), (64, 3, False), (96, 2, True)]
)
def test_passes_equal_those_of_torch_operators(
    head_dim: int, kv_heads: int, qk_norm: bool, dtype: torch.dtype, tolerance: float
) -> None:
    """Chains and trees, streams side by side, rollback, and far past the window; weights that are bfloat16 also against float32 sums."""
    config = TransformerConfig(
        width=48, layers=3, heads=6, kv_heads=kv_heads, hidden=80, window=24, head_dim=head_dim,
        qkv_bias=head_dim == 32, qk_norm=qk_norm,
    )  # fmt: skip
    made = random_transformer(config, dtype)
    packed = PackedTransformer(made)
    made = made.float()
    rng = random.Random(3)
    generator = torch.Generator().manual_seed(3)
    fast, slow = packed.cache(3), KvCache(config, 3, torch.float32)
    for _ in range(60):
        counts = [rng.randrange(0, 11) for _ in range(3)]
        if not any(counts):
            continue
        tree = rng.random() < 0.5
        parents = [rng.randrange(-1, row) if tree and row else row - 1 for count in counts for row in range(count)]
        starts = list(fast.lengths)
        x = torch.randn(sum(counts), 48, generator=generator)
        expected = made.step(x, slow, counts, parents if tree else None, taps=(1, 3))
        got = packed.step(x.numpy().copy(), fast, counts, parents if tree else None, taps=(1, 3))
        np.testing.assert_allclose(got, expected.numpy(), atol=tolerance, rtol=tolerance)
        for slot, count in enumerate(counts):
            if not count:
                continue
            own = parents[sum(counts[:slot]) : sum(counts[: slot + 1])]
            path = [rng.randrange(count)]
            while own[path[0]] >= 0:
                path.insert(0, own[path[0]])
            for cache in (fast, slow):
                cache.keep(slot, starts[slot], path)
    assert min(fast.lengths) > 100
    assert fast.lengths == slow.lengths


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_node_of_a_tree_equals_its_position_in_a_chain(dtype: torch.dtype) -> None:
    """Bit by bit, also where the tree lies elsewhere in the ring, and for what follows once its path is kept."""
    config = TransformerConfig(width=64, layers=2, heads=4, kv_heads=2, hidden=96, window=24)
    packed = PackedTransformer(random_transformer(config, dtype))
    generator = np.random.default_rng(5)
    alone, tree = packed.cache(1), packed.cache(2)

    def rows(count: int) -> Floats:
        return generator.normal(size=(count, 64)).astype(np.float32)

    def feed(cache: PackedCache, x: Floats, slot: int, parents: Sequence[int] | None = None) -> Floats:
        counts = [0] * slot + [len(x)]
        return packed.step(x.copy(), cache, counts, parents)[:, -1]

    for _ in range(30):
        first = rows(3)
        assert np.array_equal(feed(alone, first, 0), feed(tree, first, 1))
        path, others = rows(3), rows(4)
        mixed = np.stack([path[0], others[0], others[1], path[1], others[2], path[2], others[3]])
        start = tree.lengths[1]
        got = feed(tree, mixed, 1, [-1, -1, 0, 0, 3, 3, 5])
        assert np.array_equal(got[[0, 3, 5]], feed(alone, path, 0))
        tree.keep(1, start, [0, 3, 5])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kv_heads", [1, 2, 5])
def test_a_pass_of_several_rows_equals_passes_of_one(kv_heads: int, dtype: torch.dtype) -> None:
    """Bit by bit, however the queries are cut into tiles (10, 5 and 2 of a row), before and behind the ring's end."""
    config = TransformerConfig(width=80, layers=2, heads=10, kv_heads=kv_heads, hidden=96, window=40, head_dim=64)
    packed = PackedTransformer(random_transformer(config, dtype))
    generator = np.random.default_rng(7)
    together, single = packed.cache(1), packed.cache(1)
    for rows in [*range(1, 17), *range(16, 0, -1)]:
        x = generator.normal(size=(rows, 80)).astype(np.float32)
        got = packed.step(x.copy(), together, [rows])
        alone = [packed.step(x[row : row + 1].copy(), single, [1]) for row in range(rows)]
        assert np.array_equal(got, np.concatenate(alone))


@pytest.mark.parametrize("parents", [[0, 1], [-1, 1], [-1], [-2, 0], [-1, 0, 1]])
def test_parents_that_are_none(parents: list[int]) -> None:
    config = TransformerConfig(width=32, layers=1, heads=2, kv_heads=1, hidden=32, window=24)
    packed = PackedTransformer(random_transformer(config))
    with pytest.raises(ValueError, match="parents is"):
        packed.step(np.zeros((2, 32), np.float32), packed.cache(1), [2], parents)
    with pytest.raises(ValueError, match="parents is"):
        KvCache(config, 1, torch.float32).layout([2], parents)


def test_heads_of_different_size() -> None:
    torch.manual_seed(1)
    weights = [torch.randn(size, 48) for size in (70, 64, 64)]
    hidden, due = torch.randn(9, 48), np.array([0, 1, 2, 2, 1, 0, 0, 1, 2])
    logits = PackedHeads(weights)(hidden.numpy(), due)
    for row, book in enumerate(due):
        expected = hidden[row] @ weights[book].T
        np.testing.assert_allclose(logits[row, : len(expected)], expected, atol=1e-4)
        assert np.isneginf(logits[row, len(expected) :]).all()


def test_changed_weights_are_packed_again_and_copies_start_anew() -> None:
    lm = copy.deepcopy(small_lm())
    first = lm.packed()
    assert first is not None
    assert lm.packed() is first
    with torch.no_grad():
        lm.heads.get_submodule("1").get_parameter("weight").mul_(2)
    second = lm.packed()
    assert second is not None
    assert second is not first
    x, due = np.ones((1, 64), np.float32), np.array([1])
    np.testing.assert_allclose(second.heads(x, due), 2 * first.heads(x, due))
    for twin in (copy.deepcopy(lm), pickle.loads(pickle.dumps(lm))):
        again = twin.packed()
        assert again is not second
        assert np.array_equal(again.heads(x, due), second.heads(x, due))
