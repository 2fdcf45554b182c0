"""One language model's side of live streams: slots of its KV cache and the vectors of each stream's phonemes.

Turns inputs (token, phoneme, frames) into logits, one pass for all streams that take part; rollback is the ``start`` of the next pass.
What a stream gets does not depend on who else is in the pass. Knows no sampling and no script.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt
import torch

from models.kv_cache import MAX_ROWS, KvCache
from models.linear import Linear
from models.speech_lm import NO_TOKEN, OFFSETS, SpeechLm

Logits = npt.NDArray[np.float32]  # [R, codebook_size + 2]; -inf where the due codebook has no such decision


class StreamInput(NamedTuple):
    """One position's input and what is due there."""

    token: int  # codec token, or NO_TOKEN when the input is the phoneme itself
    phoneme: int  # index of the current phoneme in the stream
    frames: int  # frames of this phoneme begun so far, the frame of ``token`` counted; 0 for a phoneme input
    due: int  # codebook whose token is decided at this position


class LogitSource(Protocol):
    """What a round asks of a model."""

    def forward(self, inputs: Sequence[StreamInput], start: int) -> Logits:
        """Logits after each of ``inputs``, at positions ``start`` and after; whatever was fed from ``start`` on is forgotten."""


class LmStream:
    """One stream of an ``LmBatch``: a slot and the phonemes' vectors. Made by ``LmBatch.open``."""

    def __init__(self, batch: LmBatch, slot: int, voice_weights: Sequence[float], speed: float) -> None:
        self.batch = batch
        self.slot = slot
        self.dropped = 0  # phonemes whose vectors are freed
        lm = batch.lm
        with torch.inference_mode():
            weights = torch.tensor([list(voice_weights)], device=batch.device)
            speaker = lm.speaker(weights, torch.tensor([speed], device=batch.device))[0]
            self._speaker = speaker.to(batch.dtype)  # [width]
            self.entry = self._speaker.new_zeros(0, lm.config.transformer.width)  # [phonemes kept, width]
            self.inside = self.entry

    def extend(self, windows: Sequence[Sequence[int]]) -> None:
        """Append phonemes, each as the symbol ids at OFFSETS around it."""
        if not windows:
            return
        with torch.inference_mode():
            table = torch.tensor(windows, device=self.batch.device)
            if table.shape[1] != len(OFFSETS):
                raise ValueError(f"a window has {table.shape[1]} symbols; it must have {len(OFFSETS)}")
            entry, inside = self.batch.lm.phoneme_vectors(table)
            self.entry = torch.cat([self.entry, entry + self._speaker])
            self.inside = torch.cat([self.inside, inside + self._speaker])

    def forget(self, before: int) -> None:
        """Free the vectors of phonemes with an index below ``before``."""
        if before > self.dropped:
            self.entry = self.entry[before - self.dropped :].clone()
            self.inside = self.inside[before - self.dropped :].clone()
            self.dropped = before

    def forward(self, inputs: Sequence[StreamInput], start: int) -> Logits:
        """``LmBatch.forward`` for this stream alone."""
        return self.batch.forward([(self, inputs, start)])[0]

    def close(self) -> None:
        """Give the slot back. Idempotent."""
        self.batch.free(self)


Request = tuple[LmStream, Sequence[StreamInput], int]  # a stream, its inputs, the position of the first


class LmBatch:
    """``lm`` with ``slots`` preallocated. Not thread-safe: one owner."""

    def __init__(self, lm: SpeechLm, slots: int) -> None:
        lm.pack()
        self.lm = lm
        self.device, self.dtype = lm.tokens.weight.device, lm.step_dtype
        self.cache = KvCache(lm.config.transformer, slots, self.dtype, self.device)
        # The embeddings as arrays, where decoding is on the CPU in float32.
        self._tables: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]] | None = None
        if self.device.type == "cpu" and self.dtype == torch.float32:
            self._tables = lm.tokens.weight.detach().float().numpy(), lm.counts.weight.detach().float().numpy()
        self._free = list(range(slots))
        self._taken: dict[int, LmStream] = {}

    def open(self, voice_weights: Sequence[float], speed: float) -> LmStream:
        """A new stream in the lowest free slot.

        Args:
            voice_weights: one per voice of the model: one-hot, or a mix.
            speed: 1 = the teacher's pace.

        Raises ValueError when every slot is taken.
        """
        if not self._free:
            raise ValueError(f"all {len(self._taken)} slots are taken")
        slot = min(self._free)
        stream = LmStream(self, slot, voice_weights, speed)
        self._free.remove(slot)
        self._taken[slot] = stream
        self.cache.rewind(slot, 0)
        return stream

    def free(self, stream: LmStream) -> None:
        """See ``LmStream.close``."""
        if self._taken.get(stream.slot) is stream:
            del self._taken[stream.slot]
            self._free.append(stream.slot)

    @torch.inference_mode()
    def forward(self, requests: Sequence[Request]) -> list[Logits]:
        """Feed every request's inputs at positions ``start`` and after; everything its slot held from ``start`` on is forgotten.

        At most one request a stream, each with at least one input. Returns float32 logits [R, codebook_size + 2] of each. Raises
        ValueError when a ``start`` is no length the cache can be rewound to.
        """
        for stream, _, start in requests:
            self.cache.rewind(stream.slot, start)
        in_order = sorted(requests, key=lambda request: request[0].slot)
        parts: dict[int, list[Logits]] = {stream.slot: [] for stream, _, _ in requests}
        for at in range(0, max(len(inputs) for _, inputs, _ in in_order), MAX_ROWS):
            now = [(stream, inputs[at : at + MAX_ROWS]) for stream, inputs, _ in in_order if len(inputs) > at]
            for (stream, _), logits in zip(now, self._pass(now), strict=True):
                parts[stream.slot].append(logits)
        return [np.concatenate(parts[stream.slot]) for stream, _, _ in requests]

    def _pass(self, requests: Sequence[tuple[LmStream, Sequence[StreamInput]]]) -> list[Logits]:
        lm = self.lm
        counts = [0] * (requests[-1][0].slot + 1)
        for stream, inputs in requests:
            counts[stream.slot] = len(inputs)
        hidden = lm.transformer.step(self._vectors(requests), self.cache, counts)  # [N, width]
        due = np.array([item.due for _, inputs in requests for item in inputs])
        logits = np.full((len(due), lm.config.codebook_size + 2), -np.inf, np.float32)
        for book in set(due):
            rows = np.flatnonzero(due == book)
            chosen = hidden if len(rows) == len(due) else hidden[torch.from_numpy(rows).to(self.device)]
            head = cast(Linear, lm.heads[book])
            logits[rows, : head.out_features] = head.step(chosen).float().cpu().numpy()
        return np.split(logits, np.cumsum([len(inputs) for _, inputs in requests])[:-1])

    def _vectors(self, requests: Sequence[tuple[LmStream, Sequence[StreamInput]]]) -> torch.Tensor:
        """[N, width]."""
        lm = self.lm
        last = lm.counts.num_embeddings - 1
        if self._tables is not None:  # a few rows: three additions each cost less than the operators of a gather
            token_table, count_table = self._tables
            made = np.empty((sum(len(inputs) for _, inputs in requests), token_table.shape[1]), np.float32)
            row = 0
            for stream, inputs in requests:
                entry, inside_table = stream.entry.numpy(), stream.inside.numpy()
                for item in inputs:
                    phoneme = item.phoneme - stream.dropped
                    if item.token == NO_TOKEN:
                        made[row] = entry[phoneme]
                    else:
                        np.add(token_table[item.token], count_table[min(item.frames, last)], out=made[row])
                        made[row] += inside_table[phoneme]
                    row += 1
            return torch.from_numpy(made)
        items = [item for _, inputs in requests for item in inputs]
        columns = [(max(item.token, 0), min(item.frames, last)) for item in items]
        tokens, counts = torch.from_numpy(np.array(columns).T).to(self.device)
        inside = []
        for stream, inputs in requests:
            index = torch.from_numpy(np.array([item.phoneme for item in inputs]) - stream.dropped)
            inside.append(stream.inside[index.to(self.device)])
        # Plain indexing; an input that is a phoneme is put in its place afterwards.
        x = lm.tokens.weight[tokens].to(self.dtype) + lm.counts.weight[counts]
        x += torch.cat(inside) if len(inside) > 1 else inside[0]
        row = 0
        for stream, inputs in requests:
            for item in inputs:
                if item.token == NO_TOKEN:
                    x[row] = stream.entry[item.phoneme - stream.dropped]
                row += 1
        return x
