"""How fast codes become sound: real time factor of decoding one frame and eight frames at a time.

    python -m models.codec.speed

Random weights in full size: speed does not depend on their values. ``plain`` is the decoder as it is trained, ``float32`` and
``bfloat16`` are compiled. The last line of output is one JSON object. Knows no bundle.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

from models.codec.codec import Codec, CodecConfig, NeuralCodec
from models.codec.packed import PackedCodec

CHUNKS = (1, 8)  # frames; a stream starts with one and grows


def make_codec(weights: str) -> Codec[Any]:
    """A codec with random weights, compiled unless ``weights`` is ``plain``; always the same weights."""
    torch.manual_seed(0)
    codec = NeuralCodec(CodecConfig()).eval().requires_grad_(False)
    for layer in codec.quantizer.layers:
        torch.nn.init.normal_(layer.codebook)  # type: ignore[arg-type]
    return codec if weights == "plain" else PackedCodec(codec, getattr(torch, weights))


def real_time_factor(codec: Codec[Any], codes: Tensor, chunk: int) -> float:
    """Wall-clock seconds per second of sound, decoding ``codes`` [1, K, F] ``chunk`` frames at a time; the first chunk is not timed."""
    state = codec.initial_state(1)
    first, *rest = torch.split(codes, chunk, dim=-1)
    codec.decode_step(first, state)
    start = time.perf_counter()
    for part in rest:
        codec.decode_step(part, state)
    wall = time.perf_counter() - start
    frames = codes.shape[-1] - first.shape[-1]
    return wall * codec.sample_rate / (frames * codec.frame_samples)


def main(frames: int = 200, runs: int = 7, threads: int | None = None) -> None:
    """Decode ``frames`` frames in every way, all ways in turn, ``runs`` times; print medians."""
    torch.set_num_threads(threads or torch.get_num_threads())
    codecs = {weights: make_codec(weights) for weights in ("plain", "float32", "bfloat16")}
    shape = (1, CodecConfig().codebooks, frames)
    codes = torch.randint(CodecConfig().codebook_size, shape, generator=torch.Generator().manual_seed(0))
    found: dict[tuple[str, int], list[float]] = {(weights, chunk): [] for weights in codecs for chunk in CHUNKS}
    for _ in range(runs):
        for (weights, chunk), factors in found.items():
            factors.append(real_time_factor(codecs[weights], codes, chunk))
    table = Table("weights", "frames at a time", "RTF", "best", "ms a step")
    rows = []
    for (weights, chunk), factors in found.items():
        median = statistics.median(factors)
        step_ms = median * chunk * 1e3 * NeuralCodec.frame_samples / NeuralCodec.sample_rate
        table.add_row(weights, str(chunk), f"{median:.4f}", f"{min(factors):.4f}", f"{step_ms:.2f}")
        rows.append({"weights": weights, "chunk": chunk, "rtf": median, "rtf_best": min(factors), "step_ms": step_ms})
    Console().print(table)
    print(json.dumps({"threads": torch.get_num_threads(), "frames": frames, "runs": runs, "rows": rows}))


if __name__ == "__main__":
    typer.run(main)
