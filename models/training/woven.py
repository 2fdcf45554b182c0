"""The woven training stream: utterances as inputs and decisions, packed one after another per voice and cut into rows.

Knows phonemes, durations and codes; knows no model. The order of things is that of ``tts_spec.speculate.script``: one phoneme input, then
its frames, at every frame boundary a decision to stay, ADVANCE or END.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from models.speech_lm import OFFSETS
from models.training.dataset import UNIT, read_rows
from tts_spec.text.symbols import PAD, START, STOP, symbol_ids

CLAUSE_MARKS = frozenset(symbol_ids(",;:—"))
CUT_AT_MARK = (
    0.5  # chance that the look-ahead ends at a mark inside a sentence, as when the next clause has not arrived
)
CUT_AT_SPACE = 0.02  # the same at any space, as after a flush

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch of training rows, T positions each. Windows are per phoneme of the batch, all rows' phonemes one after another."""

    tokens: Tensor  # [B, T] codec token; 0 where the input is a phoneme
    is_phoneme: Tensor  # [B, T] bool
    counts: Tensor  # [B, T]
    phonemes: Tensor  # [B, T] index into ``windows``
    due: Tensor  # [B, T] codebook decided
    decisions: Tensor  # [B, T] index among the due codebook's options: code, or size = ADVANCE, size + 1 = END
    leavable: Tensor  # [B, T] int8 at boundaries: 0 = must stay, 1 = may ADVANCE, 2 = may END
    windows: Tensor  # [P, len(OFFSETS)]
    voices: Tensor  # [B] index of the voice
    speeds: Tensor  # [B, T]


def sentence_windows(ids: list[int], cut_after: set[int]) -> IntArray:
    """Symbol ids of a sentence -> [n, len(OFFSETS)]; PAD outside the sentence and, looking ahead, past a cut (index of its last symbol)."""
    count = len(ids)
    limit = np.full(count, count - 1)
    for cut in sorted(cut_after, reverse=True):
        limit[: cut + 1] = cut
    index = np.arange(count)[:, None] + np.array(OFFSETS)
    padded = np.array([*ids, PAD])
    known = (index >= 0) & (index <= limit[:, None])
    return np.where(known, padded[np.clip(index, 0, count)], PAD)


class WovenCorpus:
    """Utterances of a packed and encoded corpus, woven on demand."""

    def __init__(
        self, packed: Path, codes: Path, voices: tuple[str, ...], *, held_out: bool, codebook_size: int = 1024
    ) -> None:
        self.rows = read_rows(packed)
        stored = np.load(codes)
        self.codes: npt.NDArray[np.uint16] = stored["codes"]
        self.lead: npt.NDArray[np.uint8] = stored["lead"]
        self.voices = voices
        # Every 100th utterance is for validation.
        self.indices = [i for i, row in enumerate(self.rows) if (row.id % 100 == 0) == held_out]
        self.size = codebook_size
        self.books = self.codes.shape[1]

    def weave(self, index: int, rng: random.Random) -> dict[str, IntArray]:
        """Arrays of one utterance, [T] each, and ``windows`` [P, offsets]; ``phonemes`` counts from 0."""
        row = self.rows[index]
        ids = [START, *symbol_ids(row.phonemes), STOP]
        durations = np.array(row.durations)
        skip = int(durations[0]) - int(self.lead[index])
        durations[0] -= skip
        first = row.start // UNIT + skip
        codes = self.codes[first : first + int(durations.sum())].astype(np.int64)  # [F, K]
        frames, books = len(codes), self.books
        phoneme_of = np.repeat(np.arange(len(ids)), durations)  # [F]
        starts = np.cumsum(durations) - durations
        count_of = np.arange(frames) - starts[phoneme_of] + 1  # [F] frames of the phoneme, this one counted
        # Position of every input: phoneme i comes before its frames.
        length = len(ids) + frames * books
        at_phoneme = np.arange(len(ids)) + starts * books
        at_frame = (phoneme_of + 1 + np.arange(frames) * books)[:, None] + np.arange(books)  # [F, K]
        tokens = np.zeros(length, np.int64)
        counts = np.zeros(length, np.int64)
        phonemes = np.zeros(length, np.int64)
        due = np.zeros(length, np.int64)
        leavable = np.zeros(length, np.int64)
        is_phoneme = np.zeros(length, np.int64)
        tokens[at_frame] = codes + np.arange(books) * self.size
        counts[at_frame] = count_of[:, None]
        phonemes[at_frame] = phoneme_of[:, None]
        due[at_frame] = (np.arange(books) + 1) % books
        phonemes[at_phoneme] = np.arange(len(ids))
        is_phoneme[at_phoneme] = 1
        leavable[at_frame[:, -1]] = np.where(phoneme_of == len(ids) - 1, 2, 1)
        # What is decided at a position is the input that follows; a phoneme input follows ADVANCE.
        decisions = np.empty(length, np.int64)
        decisions[:-1] = np.where(is_phoneme[1:] == 1, self.size, tokens[1:] % self.size)
        decisions[-1] = self.size + 1
        marks = {i for i, s in enumerate(ids) if s in CLAUSE_MARKS and rng.random() < CUT_AT_MARK}
        spaces = {i - 1 for i, s in enumerate(row.phonemes, 1) if s == " " and rng.random() < CUT_AT_SPACE}
        return {
            "tokens": tokens,
            "is_phoneme": is_phoneme,
            "counts": counts,
            "phonemes": phonemes,
            "due": due,
            "decisions": decisions,
            "leavable": leavable,
            "windows": sentence_windows(ids, (marks | spaces) - {0}),
            "speeds": np.full(length, round(row.speed * 1000), np.int64),
        }

    def voice_rows(self, voice: str, length: int, rng: random.Random) -> Iterator[dict[str, IntArray]]:
        """Rows of ``length`` positions from one voice's utterances in random order, for ever."""
        indices = [i for i in self.indices if self.rows[i].voice == voice]
        parts: list[dict[str, IntArray]] = []
        have = phonemes = 0
        while True:
            rng.shuffle(indices)
            for index in indices:
                woven = self.weave(index, rng)
                woven["phonemes"] = woven["phonemes"] + phonemes
                phonemes += len(woven["windows"])
                parts.append(woven)
                have += len(woven["tokens"])
                while have >= length:
                    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
                    row = {name: values[:length] for name, values in joined.items() if name != "windows"}
                    first, last = int(row["phonemes"][0]), int(row["phonemes"][-1])
                    row["windows"] = joined["windows"][first : last + 1]
                    row["phonemes"] = row["phonemes"] - first
                    yield row
                    rest = {name: values[length:] for name, values in joined.items() if name != "windows"}
                    kept = int(rest["phonemes"][0]) if len(rest["phonemes"]) else len(joined["windows"])
                    rest["windows"] = joined["windows"][kept:]
                    rest["phonemes"] = rest["phonemes"] - kept
                    phonemes = len(rest["windows"])
                    parts, have = [rest], len(rest["tokens"])

    def batches(self, batch: int, length: int, seed: int) -> Iterator[Rows]:
        """Batches for ever; voices in proportion to their speech."""
        rng = random.Random(seed)
        rows = [self.rows[i] for i in self.indices]
        weights = [sum(row.samples for row in rows if row.voice == voice) for voice in self.voices]
        streams = [
            self.voice_rows(voice, length, random.Random(seed * 1000 + i)) for i, voice in enumerate(self.voices)
        ]
        while True:
            picked = rng.choices(range(len(self.voices)), weights, k=batch)
            yield collate([next(streams[voice]) for voice in picked], picked)


def collate(rows: list[dict[str, IntArray]], voices: list[int]) -> Rows:
    """Stack rows of equal length; phoneme indices are shifted to count through the batch."""
    shifts = np.cumsum([0] + [len(row["windows"]) for row in rows[:-1]])
    phonemes = np.stack([row["phonemes"] + shift for row, shift in zip(rows, shifts, strict=True)])

    def stack(name: str) -> Tensor:
        return torch.from_numpy(np.stack([row[name] for row in rows]))

    return Rows(
        tokens=stack("tokens"),
        is_phoneme=stack("is_phoneme").bool(),
        counts=stack("counts"),
        phonemes=torch.from_numpy(phonemes),
        due=stack("due"),
        decisions=stack("decisions"),
        leavable=stack("leavable"),
        windows=torch.from_numpy(np.concatenate([row["windows"] for row in rows])),
        voices=torch.tensor(voices),
        speeds=stack("speeds").float() / 1000,
    )
