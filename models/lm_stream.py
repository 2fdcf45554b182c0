"""One language model's side of one stream: its KV cache and the vectors of the stream's phonemes.

Turns inputs (token, phoneme, count) into logits; rollback is the ``start`` of the next pass. Knows no sampling and no script.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

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


class LmStream:
    """State of ``lm`` for one stream. Not thread-safe: one owner."""

    def __init__(self, lm: SpeechLm, voice_weights: Sequence[float], speed: float) -> None:
        self.lm = lm
        lm.pack()
        self._device, self._dtype = lm.tokens.weight.device, lm.step_dtype
        self.cache = KvCache(lm.config.transformer, 1, self._dtype, self._device)
        with torch.inference_mode():
            weights = torch.tensor([list(voice_weights)], device=self._device)
            self._speaker = lm.speaker(weights, torch.tensor([speed], device=self._device))[0].to(
                self._dtype
            )  # [width]
            self._entry = self._speaker.new_zeros(0, lm.config.transformer.width)
            self._inside = self._entry
        self.dropped = 0  # phonemes whose vectors are freed

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
        if before > self.dropped:
            self._entry = self._entry[before - self.dropped :].clone()
            self._inside = self._inside[before - self.dropped :].clone()
            self.dropped = before

    @torch.inference_mode()
    def forward(self, inputs: Sequence[StreamInput], start: int) -> Logits:
        """Feed ``inputs`` at positions ``start`` and after; everything the cache held from ``start`` on is forgotten.

        Returns float32 logits [R, codebook_size + 2]. Raises ValueError when ``start`` is no length
        the cache can be rewound to.
        """
        self.cache.rewind(0, start)
        logits = np.full((len(inputs), self.lm.config.codebook_size + 2), -np.inf, np.float32)
        for at in range(0, len(inputs), MAX_ROWS):
            self._pass(inputs[at : at + MAX_ROWS], logits[at : at + MAX_ROWS])
        return logits

    def _pass(self, inputs: Sequence[StreamInput], logits: Logits) -> None:
        lm = self.lm
        hidden = lm.transformer.step(self._vectors(inputs), self.cache, [len(inputs)])  # [R, width]
        due = np.array([item.due for item in inputs])
        for book in set(due):
            rows = np.flatnonzero(due == book)
            chosen = hidden if len(rows) == len(due) else hidden[torch.from_numpy(rows).to(self._device)]
            head = cast(Linear, lm.heads[book])
            logits[rows, : head.out_features] = head.step(chosen).float().cpu().numpy()

    def _vectors(self, inputs: Sequence[StreamInput]) -> torch.Tensor:
        """[R, width]."""
        lm = self.lm
        last = lm.counts.num_embeddings - 1
        columns = [(max(item.token, 0), min(item.frames, last), item.phoneme - self.dropped) for item in inputs]
        tokens, counts, phonemes = torch.from_numpy(np.array(columns).T).to(self._device)
        # Plain indexing, three times; an input that is a phoneme is put in its place afterwards.
        x = lm.tokens.weight[tokens].to(self._dtype) + lm.counts.weight[counts] + self._inside[phonemes]
        for row, item in enumerate(inputs):
            if item.token == NO_TOKEN:
                x[row] = self._entry[item.phoneme - self.dropped]
        return x
