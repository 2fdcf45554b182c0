"""Drafts of live streams by the target's own first layers and an exit, in the target's own cache.

What an exit has run of a line of inputs the target's next pass need not run again (``LmBatch.begin``). Knows no sampling and no script.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.exit_head import PackedExit
from models.lm_stream import LmBatch, LmStream, Logits, Request, StreamInput


class ExitBatch:
    """An exit from the model of ``target``."""

    def __init__(self, target: LmBatch, head: PackedExit) -> None:
        self._target = target
        self._head = head

    def open(self, stream: LmStream) -> ExitStream:
        """The exit of one stream of the target; there is nothing to close."""
        return ExitStream(self, stream)

    def forward(self, requests: Sequence[Request]) -> list[Logits]:
        """Logits [R, codebook_size + 2] after each request's inputs; see ``LmBatch.begin``. At most one request a stream."""
        in_order = sorted(requests, key=lambda request: request.stream.slot)
        residuals = self._target.begin(in_order, self._head.layers)
        due = np.array([item.due for request in in_order for item in request.inputs])
        logits = self._head.logits(residuals, due)
        ends = np.cumsum([len(request.inputs) for request in in_order])[:-1]
        parts = {request.stream.slot: part for request, part in zip(in_order, np.split(logits, ends), strict=True)}
        return [parts[request.stream.slot] for request in requests]


class ExitStream:
    """The exit of one stream. Made by ``ExitBatch.open``."""

    def __init__(self, batch: ExitBatch, stream: LmStream) -> None:
        self._batch = batch
        self._stream = stream

    def forward(self, inputs: Sequence[StreamInput], start: int) -> Logits:
        """Logits after each of ``inputs``, which begin a line at ``start`` = the stream's position or go on with it there."""
        return self._batch.forward([Request(self._stream, inputs, start)])[0]
