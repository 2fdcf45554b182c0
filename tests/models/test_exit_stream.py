"""An exit in the target's own cache: what it has run is not run again, and a pass gives the same bits with it and without."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from models.exit_head import ExitConfig, ExitHead, PackedExit
from models.exit_stream import ExitBatch
from models.kv_cache import KvCache
from models.lm_stream import LmBatch, LmStream, Request, StreamInput
from models.packed import PackedTransformer
from models.slots import MAX_ROWS
from models.transformer_config import TransformerConfig
from tests.models.test_kernels import random_transformer
from tests.models.test_lm_batch import inputs_of, open_stream
from tests.speculate.streams import small_exit, small_lm


def random_tree(rng: random.Random, line: int, rows: int) -> list[int]:
    """Parents of ``rows`` of which the first ``line`` follow each other."""
    return [row - 1 if row < line else rng.randrange(-1, row) for row in range(rows)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layers", [1, 2])
def test_layers_in_two_parts_give_the_bits_of_one_pass(layers: int, dtype: torch.dtype) -> None:
    """Streams with and without a line begun, in pieces, whole and not, under trees, past the end of the ring; the caches too."""
    config = TransformerConfig(width=48, layers=3, heads=6, kv_heads=2, hidden=80, window=24, qk_norm=True)
    packed = PackedTransformer(random_transformer(config, dtype))
    rng, generator = random.Random(3), np.random.default_rng(3)
    taps = (1, 3)
    parts, whole = packed.cache(3), packed.cache(3)
    finished = 0
    for _ in range(80):
        counts = [rng.choice([0, 1, 2, 5, 9]) for _ in range(3)]
        if not any(counts):
            continue
        lines = [rng.randint(0, count) for count in counts]
        starts = list(parts.lengths)
        parents = [p for line, count in zip(lines, counts, strict=True) for p in random_tree(rng, line, count)]
        xs = [generator.normal(size=(count, 48)).astype(np.float32) for count in counts]
        begun: list[list[Any]] = [[np.empty((0, 3, 48), np.float32)] for _ in counts]
        at = [0, 0, 0]
        while at != lines:
            now = [rng.randint(0, line - done) for line, done in zip(lines, at, strict=True)]
            if any(now):
                new = np.concatenate([x[done : done + n] for x, done, n in zip(xs, at, now, strict=True)])
                made = np.split(packed.begin(new, parts, now, layers, taps), np.cumsum(now)[:-1])
                for slot in range(3):
                    begun[slot].append(made[slot])
                at = [done + n for done, n in zip(at, now, strict=True)]
        for slot, start in enumerate(starts):
            parts.rewind(slot, start)
        used = [np.concatenate(each) for each, count in zip(begun, counts, strict=True) if count]
        x = np.concatenate(xs)
        expected = packed.step(x.copy(), whole, counts, parents, taps)
        finished += sum(lines) < len(x)
        assert np.array_equal(packed.finish(x, parts, counts, parents, taps, layers, used), expected)
        assert parts.lengths == whole.lengths
        first = 0
        for slot, count in enumerate(counts):
            if count:
                path = [rng.randrange(count)]
                while parents[first + path[0]] >= 0:
                    path.insert(0, parents[first + path[0]])
                parts.keep(slot, starts[slot], path)
                whole.keep(slot, starts[slot], path)
            first += count
        assert all(np.array_equal(a, b) for a, b in zip(parts.stores, whole.stores, strict=True))
    assert finished > 20
    assert min(parts.lengths) > 2 * config.window


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.15)])
def test_the_exit_is_the_one_that_is_trained(dtype: torch.dtype, tolerance: float) -> None:
    target = small_lm(dtype=dtype)
    torch.manual_seed(1)
    head = ExitHead(ExitConfig(64, layers=1, hidden=40))
    for weight in head.matrices:
        torch.nn.init.normal_(weight, std=0.2)
    torch.nn.init.uniform_(head.norm.weight, 0.5, 1.5)
    head.to(dtype)
    residual, due = 2 * torch.randn(6, 64), np.array([0, 1, 2, 3, 0, 2])
    with torch.no_grad():
        hidden = head(residual.to(dtype))
        expected = [target.heads[book](row).float().numpy() for book, row in zip(due, hidden, strict=True)]
    logits = PackedExit(head, target).logits(residual.numpy(), due)
    for got, want in zip(logits, expected, strict=True):
        np.testing.assert_allclose(got[: len(want)], want, atol=tolerance)
        assert np.isneginf(got[len(want) :]).all()


def rows_run(batch: LmBatch, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """(rows, first layer, layer after the last) of every part of a pass from now on."""
    assert batch.packed is not None
    made: list[tuple[int, int, int]] = []
    run = PackedTransformer._run

    def told(self: PackedTransformer, x: Any, cache: Any, counts: Any, begun: Any, parents: Any, *rest: Any) -> None:
        made.append((len(x), rest[0], rest[1]))
        run(self, x, cache, counts, begun, parents, *rest)

    monkeypatch.setattr(PackedTransformer, "_run", told)
    return made


def test_what_was_drafted_is_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    batch = LmBatch(small_lm(), 1)
    stream, inputs = open_stream(batch, 1), inputs_of(rng, 12)
    leaves = ExitBatch(batch, small_exit(small_lm())).open(stream)
    stream.forward(inputs[:5], 0)
    run = rows_run(batch, monkeypatch)
    leaves.forward(inputs[5:7], 5)
    leaves.forward(inputs[7:8], 7)
    stream.forward(inputs[5:12], 5, [-1, 0, 1, 1, 2, 0, 2])
    assert run == [(2, 0, 1), (1, 0, 1), (4, 0, 1), (7, 1, 2)]
    run.clear()
    stream.keep(5, [0, 1, 2])
    leaves.forward(inputs[8:10], 8)
    stream.forward(inputs[8:10], 8)
    assert run == [(2, 0, 1), (2, 1, 2)]


@pytest.mark.parametrize(
    ("inputs", "start", "parents"),
    [
        ([0, 1, 9, 3], 5, None),  # another input
        ([0, 1], 5, None),  # fewer
        ([0, 1, 2, 3], 4, None),  # elsewhere
        ([0, 1, 2, 3], 5, [-1, 0, 0, 2]),  # a branch where a line was begun
    ],
)
def test_another_pass_than_the_one_begun_runs_all(
    inputs: list[int], start: int, parents: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(2)
    some = inputs_of(rng, 15)
    stream, alone = (open_stream(LmBatch(small_lm(), 1), 1) for _ in range(2))
    leaves = ExitBatch(stream.batch, small_exit(small_lm())).open(stream)
    for each in (stream, alone):
        each.forward(some[10:], 0)
    leaves.forward(some[:3], 5)
    run = rows_run(stream.batch, monkeypatch)
    got = stream.forward([some[i] for i in inputs], start, parents)
    assert run == [(len(inputs), 0, 2)]
    assert np.array_equal(got, alone.forward([some[i] for i in inputs], start, parents))
    run.clear()
    stream.forward(some[:3], start)  # forgotten by now
    assert run == [(3, 0, 2)]


def test_streams_beside_each_other_draft_and_verify_as_alone() -> None:
    """Some with the exit and some without, any number begun, parked in between; slots in any order."""
    rng = random.Random(3)
    batch = LmBatch(small_lm(), 4, taps=(1,))
    leaves = ExitBatch(batch, small_exit(small_lm()))
    streams = [open_stream(batch, seed) for seed in range(4)]
    alone = [open_stream(LmBatch(small_lm(), 1, taps=(1,)), seed) for seed in range(4)]
    lengths = [0] * 4
    for _ in range(60):
        chosen = rng.sample(range(4), rng.randint(1, 4))
        lines = {i: inputs_of(rng, rng.randint(1, 8)) for i in chosen}
        drafted: dict[int, int] = {i: rng.randint(0, len(lines[i])) for i in chosen}
        at = dict.fromkeys(chosen, 0)
        while any(at[i] < drafted[i] for i in chosen):
            now = [i for i in chosen if at[i] < drafted[i]]
            step = {i: rng.randint(1, drafted[i] - at[i]) for i in now}
            requests = [Request(streams[i], lines[i][at[i] : at[i] + step[i]], lengths[i] + at[i]) for i in now]
            for i, logits in zip(now, leaves.forward(requests), strict=True):
                single = ExitBatch(alone[i].batch, small_exit(small_lm())).open(alone[i])
                new = lines[i][at[i] : at[i] + step[i]]
                assert np.array_equal(logits, single.forward(new, lengths[i] + at[i]))
                at[i] += step[i]
        if rng.random() < 0.3:
            for i in rng.sample(range(4), 4):
                streams[i].park()
            for i in rng.sample(range(4), 4):
                streams[i].unpark()
        for i in chosen:
            alone[i].begun = None  # all of its rows go through all layers
        got = batch.forward([Request(streams[i], lines[i], lengths[i]) for i in chosen])
        for i, logits in zip(chosen, got, strict=True):
            assert np.array_equal(logits, alone[i].forward(lines[i], lengths[i]))
            assert np.array_equal(streams[i].features, alone[i].features)
            lengths[i] += rng.randint(1, len(lines[i]))
    assert min(lengths) > 60


def test_a_line_longer_than_a_pass_is_refused() -> None:
    stream, inputs = open_stream(LmBatch(small_lm(), 1), 1), inputs_of(random.Random(4), MAX_ROWS + 1)
    leaves = ExitBatch(stream.batch, small_exit(small_lm())).open(stream)
    leaves.forward(inputs[:10], 0)
    leaves.forward(inputs[10:MAX_ROWS], 10)
    with pytest.raises(ValueError, match="a line of 17 inputs is begun; allowed: 16"):
        leaves.forward(inputs[MAX_ROWS:], MAX_ROWS)


def on_torch(seed: int) -> LmStream:
    """A stream whose passes are torch's, as on a GPU."""
    batch = LmBatch(small_lm(), 1)
    batch.packed, batch.cache = None, KvCache(small_lm().config.transformer, 1, torch.float32)
    return open_stream(batch, seed)


def test_by_torch_operators_it_drafts_the_same_and_passes_run_all_rows() -> None:
    rng = random.Random(5)
    slow, fast = on_torch(1), open_stream(LmBatch(small_lm(), 1), 1)
    exits = [ExitBatch(each.batch, small_exit(small_lm())).open(each) for each in (slow, fast)]
    length = 0
    for _ in range(30):
        inputs: list[StreamInput] = inputs_of(rng, 6)
        for cut, new in ((0, inputs[:2]), (2, inputs[2:3])):
            got, expected = (leaves.forward(new, length + cut) for leaves in exits)
            np.testing.assert_allclose(got, expected, atol=1e-4)
        parents = [-1, 0, 1, 2, 1, 0]
        got, expected = (each.forward(inputs, length, parents) for each in (slow, fast))
        np.testing.assert_allclose(got, expected, atol=1e-4)
        for each in (slow, fast):
            each.keep(length, [0, 1, 4])
        length += 3
