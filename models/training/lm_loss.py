"""From a batch of woven rows to hidden states, and from hidden states to the loss of every codebook's decisions.

Shared by the target's training and the drafter's distillation. Knows rows and logits; knows no optimiser.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from models.speech_lm import SpeechLm
from models.training.woven import Rows


def lm_matrices(lm: SpeechLm) -> list[torch.nn.Parameter]:
    """The matrices that Muon trains."""
    condition = [] if lm.condition is None else [lm.condition.join.get_parameter("weight")]
    return [*(p for p in lm.transformer.parameters() if p.ndim == 2), *condition]


def input_vectors(lm: SpeechLm, rows: Rows) -> Tensor:
    """[B, T, width]."""
    entry, inside = lm.phoneme_vectors(rows.windows)  # [P, width] each
    x = torch.where(
        rows.is_phoneme[..., None],
        entry[rows.phonemes],
        inside[rows.phonemes] + lm.codec_vectors(rows.tokens, rows.counts),
    )
    weights = F.one_hot(rows.voices, lm.config.voices).to(x.dtype)  # [B, voices]
    batch, length = rows.tokens.shape
    spread = weights[:, None].expand(batch, length, -1).reshape(batch * length, -1)
    speaker = lm.speaker(spread, rows.speeds.reshape(-1)).view(batch, length, -1)
    return x + speaker


def hidden_states(lm: SpeechLm, rows: Rows) -> Tensor:
    """[B, T, width]."""
    states: Tensor = lm.transformer(input_vectors(lm, rows))
    return states


def book_logits(lm: SpeechLm, hidden: Tensor, rows: Rows, book: int) -> tuple[Tensor, Tensor]:
    """Logits float32 [n, options] of every position where ``book`` is due (illegal options -inf), and the decisions [n]."""
    due = rows.due == book
    logits = lm.heads[book](hidden[due]).float()
    if book == 0:
        leavable = rows.leavable[due]
        size = lm.config.codebook_size
        illegal = torch.zeros_like(logits, dtype=torch.bool)
        illegal[:, size] = leavable != 1
        illegal[:, size + 1] = leavable != 2
        logits = logits.masked_fill(illegal, float("-inf"))
    return logits, rows.decisions[due]


def decision_loss(lm: SpeechLm, hidden: Tensor, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
    """(mean cross-entropy over all decisions, the same by codebook for the log; ``leave`` is ADVANCE/END against audio)."""
    total = hidden.new_zeros(())
    count = 0
    parts: dict[str, Tensor] = {}
    for book in range(lm.config.codebooks):
        logits, decisions = book_logits(lm, hidden, rows, book)
        losses = F.cross_entropy(logits, decisions, reduction="none")
        total = total + losses.sum()
        count += len(losses)
        parts[f"book{book}"] = losses.detach().mean()
        if book == 0:
            size = lm.config.codebook_size
            boundary = rows.leavable[rows.due == 0] > 0
            leave = torch.logsumexp(logits[boundary, size:], -1) - torch.logsumexp(logits[boundary, :size], -1)
            wanted = (decisions[boundary] >= size).float()
            parts["leave"] = F.binary_cross_entropy_with_logits(leave.detach(), wanted)
    return total / count, parts
