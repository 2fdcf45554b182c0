"""Faster or slower speech at the same pitch, for speeds the voice itself does not have: FFmpeg's atempo (WSOLA), a piece at a time.

Knows samples only.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import av
import av.filter
import numpy as np

from tts_spec.types import Pcm

SLOWEST, FASTEST = 0.5, 2.0  # of one atempo; beyond 2 it would skip samples, below 0.5 it refuses


class Tempo:
    """One stream. The length changes by ``factor``, to within 50 ms; samples do not depend on how they were cut."""

    def __init__(self, factor: float, rate: int) -> None:
        """``factor``: above 0, 2 = twice as fast; ``rate``: Hz."""
        graph: Any = av.filter.Graph()
        nodes = [graph.add_abuffer(sample_rate=rate, format="flt", layout="mono", time_base=f"1/{rate}")]
        while factor != 1.0:
            step = min(max(factor, SLOWEST), FASTEST)
            nodes.append(graph.add("atempo", f"{step:.6f}"))
            factor = 1.0 if abs(factor / step - 1.0) < 1e-9 else factor / step
        nodes.append(graph.add("aformat", "sample_fmts=flt"))
        nodes.append(graph.add("abuffersink"))
        for left, right in pairwise(nodes):
            left.link_to(right)
        graph.configure()
        self._graph, self._rate, self._given = graph, rate, 0
        self._block = rate // 40  # the filter works on these, and its rounding depends on them
        self._rest: Pcm = np.zeros(0, np.float32)

    def apply(self, pcm: Pcm) -> Pcm:
        """What ``pcm`` ([N]) completes; may be empty."""
        waiting = np.concatenate([self._rest, pcm])
        whole = len(waiting) // self._block * self._block
        self._rest = waiting[whole:]
        for start in range(0, whole, self._block):
            self._push(waiting[start : start + self._block])
        return self._pull()

    def finish(self) -> Pcm:
        """What is left."""
        if len(self._rest):
            self._push(self._rest)
        if self._given:
            self._graph.push(None)
        return self._pull()

    def _push(self, pcm: Pcm) -> None:
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(pcm)[None], format="flt", layout="mono")
        frame.sample_rate = self._rate
        frame.pts = self._given
        self._given += len(pcm)
        self._graph.push(frame)

    def _pull(self) -> Pcm:
        parts = []
        while True:
            try:
                parts.append(self._graph.pull().to_ndarray()[0])
            except (av.BlockingIOError, av.EOFError):
                return np.concatenate(parts) if parts else np.zeros(0, np.float32)
