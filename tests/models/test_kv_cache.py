"""Decoding against the ring: the same whatever the passes, the rollbacks, the neighbours and the wraps."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import Tensor

from models.kv_cache import KvCache
from models.packed import PackedTransformer
from models.products import Floats
from models.rope import position_angles, rope_table, rotate
from models.slots import MAX_ROWS
from models.transformer import Transformer
from models.transformer_config import TransformerConfig

WINDOW = 32
LENGTH = 6 * WINDOW + 5


def make(**sizes: int) -> Transformer:
    """Random weights large enough that every position and every visible key matters."""
    torch.manual_seed(3)
    config = TransformerConfig(
        **{"width": 48, "layers": 2, "heads": 6, "kv_heads": 2, "hidden": 96, "window": WINDOW} | sizes
    )
    made = Transformer(config)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            weight.normal_(std=weight.shape[-1] ** -0.5) if weight.ndim == 2 else weight.uniform_(0.5, 1.5)
            assert "norm" in name or weight.ndim == 2
    return made


def step(made: Transformer, x: Tensor, cache: KvCache) -> Tensor:
    """The same number of new positions ``x`` [B, R, width] in every slot."""
    batch, rows, width = x.shape
    return made.step(x.reshape(-1, width), cache, [rows] * batch)[:, -1].view(x.shape)


def row_by_row(made: Transformer, x: Tensor) -> Tensor:
    cache = KvCache(made.config, 1, torch.float32)
    return torch.cat([step(made, x[:, i : i + 1], cache) for i in range(x.shape[1])], dim=1)


def in_passes(made: Transformer, x: Tensor, rows: int | random.Random) -> Tensor:
    cache = KvCache(made.config, 1, torch.float32)
    parts = []
    while cache.lengths[0] < x.shape[1]:
        count = rows if isinstance(rows, int) else rows.randint(1, MAX_ROWS)
        at = cache.lengths[0]
        parts.append(step(made, x[:, at : at + count], cache))
    return torch.cat(parts, dim=1)


def inputs(made: Transformer, length: int = LENGTH, batch: int = 1) -> Tensor:
    return torch.randn(batch, length, made.config.width, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("sizes", [{}, {"heads": 2}, {"heads": 4, "kv_heads": 1}, {"heads": 6, "kv_heads": 6}])
def test_passes_equal_whole_rows_equal_row_by_row(sizes: dict[str, int]) -> None:
    made = make(**sizes)
    x = inputs(made)
    with torch.no_grad():
        whole = made(x)
    single = row_by_row(made, x)
    torch.testing.assert_close(single, whole, atol=2e-5, rtol=0)
    for rows in (2, 5, MAX_ROWS, random.Random(4)):
        torch.testing.assert_close(in_passes(made, x, rows), single, atol=1e-5, rtol=0)


def test_a_window_longer_than_an_attention_block() -> None:
    """The attention kernel works in blocks of 512 keys; whole blocks are empty at first."""
    made = make(window=600)
    x = inputs(made, length=700)
    with torch.no_grad():
        whole = made(x)
    torch.testing.assert_close(in_passes(made, x, MAX_ROWS), whole, atol=2e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_does_not_depend_on_the_rows_beside_it(dtype: torch.dtype) -> None:
    """Bit for bit, at the sizes of the starter voice; what makes speculation exact beyond the last digit."""
    torch.manual_seed(6)
    made = Transformer(TransformerConfig(layers=2)).to(dtype)
    packed = PackedTransformer(made)
    x = inputs(made, length=300)[0].numpy()

    def in_passes_of(rows: int) -> list[Floats]:
        cache = packed.cache(1)
        passes = [x[at : at + rows].copy() for at in range(0, len(x), rows)]
        return list(np.concatenate([packed.step(each, cache, [len(each)]) for each in passes]))

    single = in_passes_of(1)
    for rows in (2, 3, 8, 11, MAX_ROWS):
        assert np.array_equal(in_passes_of(rows), single)


@pytest.mark.parametrize("start", [3, 2 * WINDOW, 5 * WINDOW + 7])
def test_rolled_back_rows_leave_no_trace(start: int) -> None:
    made = make()
    x = inputs(made)
    rejected = -3 * inputs(made)
    expected = row_by_row(made, x)
    cache = KvCache(made.config, 1, torch.float32)
    rng = random.Random(start)
    while cache.lengths[0] < LENGTH:
        at = cache.lengths[0]
        good = min(rng.randint(1, MAX_ROWS), LENGTH - at)
        if at >= start:  # a pass partly of rejected rows, rolled back to where they begin
            kept = rng.randint(0, good - 1)
            mixed = torch.cat([x[:, at : at + kept], rejected[:, : MAX_ROWS - kept]], dim=1)
            step(made, mixed, cache)
            cache.rewind(0, at + kept)
            at, good = at + kept, good - kept
        got = step(made, x[:, at : at + good], cache)
        torch.testing.assert_close(got, expected[:, at : at + good], atol=1e-5, rtol=0)


def test_rows_of_a_batch_have_their_own_lengths() -> None:
    made = make()
    batch, rng = 3, random.Random(8)
    x = inputs(made, batch=batch)
    alone = [row_by_row(made, x[row : row + 1]) for row in range(batch)]
    cache = KvCache(made.config, batch, torch.float32)
    steps = 0
    while min(cache.lengths) < LENGTH - MAX_ROWS:
        rows = rng.randint(1, MAX_ROWS)
        starts = list(cache.lengths)
        got = step(made, torch.stack([x[row, at : at + rows] for row, at in enumerate(starts)]), cache)
        for row, at in enumerate(starts):
            torch.testing.assert_close(got[row], alone[row][0, at : at + rows], atol=1e-5, rtol=0)
            keep = rng.randint(0, rows)  # each row rolls back by another amount
            cache.rewind(row, min(at + keep, LENGTH - MAX_ROWS))
        steps += 1
    assert max(cache.lengths) > 5 * WINDOW
    assert steps > 20


def test_slots_of_one_pass_have_any_number_of_new_positions() -> None:
    made = make()
    slots, rng = 5, random.Random(9)
    x = inputs(made, batch=slots)
    alone = [row_by_row(made, x[slot : slot + 1])[0] for slot in range(slots)]
    cache = KvCache(made.config, slots, torch.float32)
    wrapped = 0
    for _ in range(120):
        counts = [min(rng.choice([0, 0, 1, 3, 5, MAX_ROWS]), LENGTH - at) for at in cache.lengths]
        if not any(counts):
            continue
        starts = list(cache.lengths)
        parts = [x[slot, at : at + count] for slot, (at, count) in enumerate(zip(starts, counts, strict=True))]
        got = made.step(torch.cat(parts), cache, counts)[:, -1].split(counts)
        for slot, (at, count) in enumerate(zip(starts, counts, strict=True)):
            torch.testing.assert_close(got[slot], alone[slot][at : at + count], atol=1e-5, rtol=0)
            wrapped += at > cache.capacity
            keep = rng.randint(0, count)
            cache.rewind(slot, at + keep)
        full = [slot for slot, length in enumerate(cache.lengths) if length == LENGTH]
        for slot in full:
            cache.rewind(slot, 0)
    assert wrapped > 20


def test_rewinding_too_far_is_refused() -> None:
    made = make()
    x = inputs(made)
    cache = KvCache(made.config, 1, torch.float32)
    for at in range(0, 4 * WINDOW, MAX_ROWS):
        step(made, x[:, at : at + MAX_ROWS], cache)
    with pytest.raises(ValueError, match="length is 129; only 128"):
        cache.rewind(0, 129)
    with pytest.raises(ValueError, match="length is -1"):
        cache.rewind(0, -1)
    with pytest.raises(ValueError, match="at most 16 can be undone"):
        cache.rewind(0, 128 - MAX_ROWS - 1)
    cache.rewind(0, 128 - MAX_ROWS)
    with pytest.raises(ValueError, match="at most 16 can be undone"):
        cache.rewind(0, 128 - MAX_ROWS - 1)  # undone rows still lie in the ring
    cache.rewind(0, 0)  # a fresh start is always possible
    torch.testing.assert_close(step(made, x[:, :9], cache), row_by_row(made, x[:, :9]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("counts", [[], [0], [0, 0], [MAX_ROWS + 1], [1, -1]])
def test_rows_of_a_pass_are_bounded(counts: list[int]) -> None:
    with pytest.raises(ValueError, match="allowed: 0 to 16 for each slot"):
        KvCache(TransformerConfig(), 2, torch.float32).layout(counts)


def test_angles_of_decoding_are_those_of_training() -> None:
    positions = torch.tensor([[0, 1, 77, 3_000_000]])
    x = torch.randn(1, 4, 2, 64)
    cos, sin = (torch.from_numpy(part)[:, :, None] for part in position_angles(positions.numpy(), 64, 10_000.0))
    decoded = x * cos + x.roll(32, -1) * sin
    trained = rotate(x.transpose(1, 2), *(part[:, None] for part in rope_table(positions, 64, 10_000.0)))
    torch.testing.assert_close(decoded, trained.transpose(1, 2), atol=1e-6, rtol=0)
