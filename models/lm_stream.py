"""One language model's side of one stream: its KV cache and the vectors of the stream's phonemes.

Turns inputs (token, phoneme, count) into logits; rollback is the ``start`` of the next pass. Knows no sampling and no script.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from models.kv_cache import MAX_ROWS, KvCache
from models.speech_lm import NO_TOKEN, OFFSETS, SpeechLm

Logits = npt.NDArray[np.float32]  # [R, codebook_size + 2]; -inf where the due codebook has no such decision


class StreamInput(NamedTuple):
    """One position's input and what is due there."""

    token: int  # codec token, or NO_TOKEN when the input is the phoneme itself
    phoneme: int  # index of the current phoneme in the stream
    frames: int  # frames of this phoneme begun so far, the frame of ``token`` counted; 0 for a phoneme input
    due: int  # codebook whose token is decided at this position


class LmStream:
    """State of ``lm`` for one stream. Not thread-safe: one owner."""

    def __init__(self, lm: SpeechLm, voice_weights: Sequence[float], speed: float) -> None:
        self.lm = lm
        parameter = lm.tokens.weight
        self._device, self._dtype = parameter.device, parameter.dtype
        self.cache = KvCache(lm.config.transformer, 1, self._dtype, self._device)
        with torch.inference_mode():
            weights = torch.tensor([list(voice_weights)], device=self._device)
            self._speaker = lm.speaker(weights, torch.tensor([speed], device=self._device))[0]  # [width]
            self._entry = self._speaker.new_zeros(0, lm.config.transformer.width)
            self._inside = self._entry
        self._dropped = 0

    def extend(self, windows: Sequence[Sequence[int]]) -> None:
        """Append phonemes, each as the symbol ids at OFFSETS around it."""
        if not windows:
            return
        with torch.inference_mode():
            table = torch.tensor(windows, device=self._device)
            if table.shape[1] != len(OFFSETS):
                raise ValueError(f"a window has {table.shape[1]} symbols; it must have {len(OFFSETS)}")
            entry, inside = self.lm.phoneme_vectors(table)
            self._entry = torch.cat([self._entry, entry + self._speaker])
            self._inside = torch.cat([self._inside, inside + self._speaker])

    def forget(self, before: int) -> None:
        """Free the vectors of phonemes with an index below ``before``."""
        if before > self._dropped:
            self._entry = self._entry[before - self._dropped :].clone()
            self._inside = self._inside[before - self._dropped :].clone()
            self._dropped = before

    @torch.inference_mode()
    def forward(self, inputs: Sequence[StreamInput], start: int) -> Logits:
        """Feed ``inputs`` at positions ``start`` and after; everything the cache held from ``start`` on is forgotten.

        Returns float32 logits [R, codebook_size + 2]. Raises ValueError when ``start`` lies beyond what was fed.
        """
        if start > self.cache.lengths[0]:
            raise ValueError(f"start is {start}; only {self.cache.lengths[0]} positions are cached")
        self.cache.lengths[0] = start
        logits = np.full((len(inputs), self.lm.config.codebook_size + 2), -np.inf, np.float32)
        for at in range(0, len(inputs), MAX_ROWS):
            self._pass(inputs[at : at + MAX_ROWS], logits[at : at + MAX_ROWS])
        return logits

    def _pass(self, inputs: Sequence[StreamInput], logits: Logits) -> None:
        x = torch.stack([self._vector(item) for item in inputs])
        hidden = self.lm.transformer.step(x[None], self.cache)[0]  # [R, width]
        due = [item.due for item in inputs]
        for book, head in enumerate(self.lm.heads):
            rows = [row for row, item in enumerate(due) if item == book]
            if rows:
                chosen = hidden if len(rows) == len(inputs) else hidden[rows]
                logits[rows, : head.out_features] = head(chosen).float().cpu().numpy()

    def _vector(self, item: StreamInput) -> torch.Tensor:
        phoneme = item.phoneme - self._dropped
        if item.token == NO_TOKEN:
            return self._entry[phoneme]
        count = min(item.frames, self.lm.counts.num_embeddings - 1)
        return self.lm.tokens.weight[item.token] + self.lm.counts.weight[count] + self._inside[phoneme]
