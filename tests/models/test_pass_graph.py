"""Passes in buckets of static shape, with the eager stand-in for graphs: the same as passes of just the rows there are.

What the stand-in cannot show, that a capture and its replays are right on the device, is in ``test_cuda.py``.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from models.kv_cache import KvCache
from models.lm_stream import LmBatch, LmStream, Request
from models.pass_graph import EagerGraph, Outputs, PassGraphs
from models.slots import MAX_ROWS
from models.speech_lm import SpeechLm
from tests.speculate.streams import DRAFTERS as MAKERS
from tests.speculate.streams import WINDOW, lm_stream, random_text, run, small_lm
from tts_spec.speculate.sampling import SamplingOptions

SLOTS = 3
WIDTH = 64


class Counting:
    """Makes eager graphs and counts them."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, body: Callable[[], Outputs]) -> EagerGraph:
        self.made += 1
        for _ in range(2):
            body()  # as a capture's warm-up does
        return EagerGraph(body)


class Pair:
    """The same passes in buckets and without."""

    def __init__(self, most: int = 32) -> None:
        self.lm = small_lm()
        config = self.lm.config.transformer
        self.counting = Counting()
        self.cache = KvCache(config, SLOTS + 1, torch.float32)
        self.eager = KvCache(config, SLOTS, torch.float32)
        self.graphs = PassGraphs(self.lm, self.cache, (1,), self.counting, most)
        self._rng = np.random.default_rng(3)

    def step(self, counts: list[int], parents: list[int] | None = None) -> tuple[float, bool]:
        """(largest difference, whether there is none) of features and logits."""
        x = self._rng.normal(size=(sum(counts), WIDTH)).astype(np.float32)
        due = self._rng.integers(0, 4, sum(counts))
        features, logits = self.graphs(x, counts, parents, due)
        with torch.inference_mode():
            states = self.lm.transformer.step(torch.from_numpy(x), self.eager, counts, parents, (1,))
            wanted = np.full_like(logits, -np.inf)
            for row, book in enumerate(due):
                made = self.lm.heads[book](states[:, -1])[row]
                wanted[row, : len(made)] = made
        assert np.array_equal(np.isfinite(logits), np.isfinite(wanted))
        finite = np.isfinite(wanted)
        off = max(np.abs(features - states.numpy()).max(), np.abs(logits[finite] - wanted[finite]).max())
        return float(off), np.array_equal(features, states.numpy())

    def rewind(self, slot: int, length: int) -> None:
        self.cache.rewind(slot, length)
        self.eager.rewind(slot, length)


def random_parents(rng: random.Random, counts: list[int]) -> list[int]:
    return [rng.randint(-1, row - 1) if rng.random() < 0.4 else row - 1 for count in counts for row in range(count)]


def test_a_full_bucket_is_the_same_to_the_bit() -> None:
    """One stream, the same shapes: over the ring's end, too."""
    pair = Pair()
    for _ in range(2 * (WINDOW + MAX_ROWS) // 8):
        assert pair.step([8]) == (0.0, True)


@pytest.mark.parametrize("seed", range(4))
def test_any_rows_of_any_streams_are_the_same_but_for_rounding(seed: int) -> None:
    """Chains and trees, with slots left out, rolled back, and a ring that wraps."""
    rng = random.Random(seed)
    pair = Pair()
    for _ in range(60):
        counts = [rng.choice([0, 1, 1, 3, 8, rng.randint(1, MAX_ROWS)]) for _ in range(rng.randint(1, SLOTS))]
        if not any(counts):
            continue
        tree = rng.random() < 0.5
        before = list(pair.cache.lengths)
        off, _ = pair.step(counts, random_parents(rng, counts) if tree else None)
        assert off < 2e-5
        assert pair.cache.lengths[:SLOTS] == pair.eager.lengths
        for slot, count in enumerate(counts):
            if tree and count:  # what a round does: the accepted path, or here none of it
                pair.rewind(slot, before[slot])
            elif count and rng.random() < 0.4:
                pair.rewind(slot, before[slot] + rng.randint(0, count))
    assert max(pair.cache.lengths) > WINDOW + MAX_ROWS
    assert pair.counting.made == len(pair.graphs.buckets) > 3


def test_within_a_bucket_a_row_is_the_same_alone_and_beside_others() -> None:
    """Plain decoding, one row a pass, and drafts, up to eight: that is what makes tokens equal."""
    lm, config = small_lm(), small_lm().config.transformer
    rng = np.random.default_rng(5)
    x = rng.normal(size=(96, WIDTH)).astype(np.float32)
    due = rng.integers(0, 4, len(x))
    made = []
    for rows in (1, 3, 8):
        graphs = PassGraphs(lm, KvCache(config, SLOTS + 1, torch.float32), (), EagerGraph)
        passes = [graphs(x[at : at + rows], [rows], None, due[at : at + rows]) for at in range(0, len(x), rows)]
        made.append(np.concatenate([logits for _, logits in passes]))
        assert graphs.buckets == ((1, 8, None),)
    assert np.array_equal(made[0], made[1])
    assert np.array_equal(made[0], made[2])


def test_padding_touches_no_stream(pair: Pair) -> None:
    for counts in ([4, 4, 4], [1], [0, 2], [0, 0, 9], [16, 1, 3]):
        kept = pair.cache.store.clone()
        lengths = list(pair.cache.lengths)
        pair.step(counts)
        changed = (pair.cache.store != kept).flatten(3).any(-1).any(0)  # [slots, capacity]
        for slot in range(SLOTS):
            count = counts[slot] if slot < len(counts) else 0
            places = {(lengths[slot] + row) % pair.cache.capacity for row in range(count)}
            assert set(changed[slot].nonzero()[:, 0].tolist()) == places
        assert pair.cache.lengths[SLOTS] == 0


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_buckets_are_few_and_the_one_not_used_for_longest_goes() -> None:
    pair = Pair(most=2)
    pair.step([1])
    pair.step([7])
    pair.step([8])
    assert pair.graphs.buckets == ((1, 8, None),)
    pair.step([9])
    assert pair.graphs.buckets == ((1, 8, None), (1, 16, None))
    pair.step([2])
    pair.step([0, 0, 1])
    assert pair.graphs.buckets == ((1, 8, None), (3, 8, None))
    assert pair.counting.made == 3
    off, _ = pair.step([12])
    assert off < 2e-5
    assert pair.counting.made == 4


@pytest.mark.parametrize("counts", [[], [0], [17], [0, 0, 0, 1]])
def test_bad_counts_are_refused(pair: Pair, counts: list[int]) -> None:
    """The last slot is the padding's."""
    with pytest.raises(ValueError, match=r"counts (is|has)"):
        pair.graphs(np.zeros((sum(counts), WIDTH), np.float32), counts, None, np.zeros(sum(counts), np.int64))


def test_a_bad_tree_is_refused(pair: Pair) -> None:
    with pytest.raises(ValueError, match="parents is"):
        pair.graphs(np.zeros((2, WIDTH), np.float32), [2], [-1, 1], np.zeros(2, np.int64))


def unpacked(lm: SpeechLm, monkeypatch: pytest.MonkeyPatch) -> LmStream:
    """A stream whose passes are graphs', on the CPU."""
    with monkeypatch.context() as patch:
        patch.setattr(SpeechLm, "packed", lambda self: None)
        return LmBatch(lm, 1, (1,), EagerGraph).open([0.25, 0.75], speed=1.25)


@pytest.mark.parametrize("name", ["model while sure", "medusa", "early-exit", "tree"])
def test_drafters_say_what_plain_decoding_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, options = random_text(random.Random(4), 8), SamplingOptions(0.9, repetition_penalty=1.2)
    hashes = []
    for make, gamma in ((MAKERS["none"], 0), (MAKERS[name], 7)):
        monkeypatch.setattr("tests.speculate.streams.lm_stream", lambda lm: unpacked(lm, monkeypatch))
        outcome = run(text, make, gamma, options, 3)
        assert outcome.target.batch.packed is None
        hashes.append(outcome.decisions)
        monkeypatch.undo()
    assert hashes[0] == hashes[1]
    assert outcome.acceptance > 0


def test_the_first_layers_alone_are_a_bucket_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    graphed, packed = unpacked(small_lm(), monkeypatch), lm_stream(small_lm())
    text = random_text(random.Random(1), 3)
    inputs = run(text, MAKERS["none"], 0, SamplingOptions(0.9), 3).inputs()[:4]
    residuals = []
    for stream in (graphed, packed):
        stream.extend(text.windows)
        residuals.append(stream.batch.begin([Request(stream, inputs, 0)], layers=1))
    np.testing.assert_allclose(residuals[0], residuals[1], atol=2e-5)
