"""The check for a machine with a GPU: graphs against single operators, drafts against plain decoding, and what a pass takes.

    pytest -s tests/models/test_cuda.py

prints milliseconds a pass and tokens a second; without a GPU everything here is skipped. Knows the starter voice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from models.lm_stream import LmBatch, LmStream, Request, StreamInput
from models.pass_graph import CudaGraph, EagerGraph, GraphMaker
from models.speech_lm import NO_TOKEN, OFFSETS
from tts_spec.synthesizer import Synthesizer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
TEXTS = ("Text goes in by the word, and audio comes out by the frame.", "Have you got your ticket? It costs $5.")
PASSES = 200


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def starter(request: pytest.FixtureRequest) -> Iterator[Synthesizer]:
    synthesizer = Synthesizer.load(device="cuda", dtype=request.param)
    yield synthesizer
    synthesizer.close()


def open_streams(starter: Synthesizer, make_graph: GraphMaker, slots: int) -> list[LmStream]:
    target = starter.bundle.target
    batch = LmBatch(target, slots, starter.bundle.manifest.taps, make_graph)
    voice = [1.0] + [0.0] * (target.config.voices - 1)
    streams = [batch.open(voice, 1.0) for _ in range(slots)]
    for stream in streams:
        stream.extend([[1 + (place + at) % 40 for at in range(len(OFFSETS))] for place in range(64)])
    return streams


def lines(streams: list[LmStream], start: int, rows: int) -> list[Request]:
    """Rows that follow each other, the same for any cut: a phoneme, then frames of it."""

    def item(position: int) -> StreamInput:
        phoneme, place = divmod(position, 33)
        if place == 0:
            return StreamInput(NO_TOKEN, phoneme, 0, 0)
        book = (place - 1) % 4
        token = book * 1024 + position * 37 % 1024
        return StreamInput(token, phoneme, (place + 3) // 4, (book + 1) % 4)

    return [Request(stream, [item(start + row) for row in range(rows)], start) for stream in streams]


@pytest.mark.parametrize("slots", [1, 3, 8])
def test_replayed_graphs_are_the_single_operators_bit_by_bit(starter: Synthesizer, slots: int) -> None:
    made = []
    for make_graph in (EagerGraph, CudaGraph):
        streams = open_streams(starter, make_graph, slots)
        made.append(
            [streams[0].batch.forward(lines(streams, start, rows)) for start, rows in ((0, 1), (1, 8), (9, 3), (6, 5))]
        )
    for eager, graphed in zip(*made, strict=True):
        for one, other in zip(eager, graphed, strict=True):
            assert np.array_equal(one, other)


def test_one_row_and_eight_round_alike_in_a_bucket(starter: Synthesizer) -> None:
    """What makes tokens equal with and without drafts."""
    made = []
    for rows in (1, 4, 8):
        streams = open_streams(starter, CudaGraph, 1)
        passes = [streams[0].batch.forward(lines(streams, start, rows))[0] for start in range(0, 320, rows)]
        made.append(np.concatenate(passes))
    assert np.array_equal(made[0], made[1])
    assert np.array_equal(made[0], made[2])


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
def test_drafts_change_no_token(starter: Synthesizer, temperature: float) -> None:
    for seed, text in enumerate(TEXTS):
        plain = starter.speak(text, drafter="none", seed=seed, temperature=temperature).stats
        for drafter in (*starter.bundle.manifest.drafter_names[1:], "auto"):
            for gamma in (1, 4, 7):  # 8 rows at most: the bucket of plain decoding
                drafted = starter.speak(text, drafter=drafter, gamma=gamma, seed=seed, temperature=temperature).stats  # type: ignore[arg-type]
                assert drafted.token_hash == plain.token_hash, (drafter, gamma)


def test_what_a_pass_takes(starter: Synthesizer, capsys: pytest.CaptureFixture[str]) -> None:
    """Prints; fails only where graphs are no gain at all."""
    took: dict[tuple[str, int, int], float] = {}
    for name, make_graph in {"operators": EagerGraph, "graphs": CudaGraph}.items():
        for slots in (1, 8, 16):
            streams = open_streams(starter, make_graph, slots)
            for rows in (1, 8, 16):
                requests = lines(streams, 0, rows)
                for _ in range(5):
                    streams[0].batch.forward(requests)
                torch.cuda.synchronize()
                started = time.perf_counter()
                for _ in range(PASSES):
                    streams[0].batch.forward(requests)  # its results are on the CPU when it returns
                took[name, slots, rows] = (time.perf_counter() - started) / PASSES * 1000
    dtype = starter.bundle.target.tokens.weight.dtype
    with capsys.disabled():
        for (name, slots, rows), ms in took.items():
            print(f"{dtype} {name:9} {slots:2} streams x {rows:2} rows: {ms:.3f} ms a pass")
        for drafter in ("none", "model", "auto"):
            stats = starter.speak(TEXTS[0], drafter=drafter, seed=1).stats  # type: ignore[arg-type]
            print(f"{dtype} {drafter:5}: {stats.tokens / stats.rounds_s:.0f} tokens/s, tau {stats.tau:.2f}")
    assert took["graphs", 1, 1] < took["operators", 1, 1]
