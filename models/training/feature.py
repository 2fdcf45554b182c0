"""Trains the network of the ``feature`` drafter on a trained target.

    python -m models.training.feature PACKED CODES.npz TARGET_CHECKPOINT CHECKPOINT --steps 600

From random positions the network is unrolled over the tokens that follow, and at each compared with the target's own distribution there,
as deployed (after temperature). Loss: KL first, then -log of the chance that both take the same token under the same noise.
"""

from __future__ import annotations

from pathlib import Path

import torch
import typer
from torch import Tensor

from models.feature_head import FeatureConfig, FeatureHead
from models.speech_lm import SpeechLm
from models.training.acceptance import coupled_match
from models.training.drafter import KL_STEPS, load_target
from models.training.fit import Loss, fit, optimizers
from models.training.lm_loss import input_vectors
from models.training.loop import Run
from models.training.target import VOICES
from models.training.woven import Rows, WovenCorpus

STARTS = 768  # positions of a batch from which the network is unrolled
STRIDE = 6  # decisions unrolled


def feature_config(target: SpeechLm) -> FeatureConfig:
    """Sizes of the starter's."""
    config = target.config
    layers = config.transformer.layers
    return FeatureConfig(
        config.transformer.width,
        (layers // 3, 2 * layers // 3 + 1),
        codebooks=config.codebooks,
        codebook_size=config.codebook_size,
    )


def masked(logits: Tensor, leavable: Tensor, book: int, size: int) -> Tensor:
    """``logits`` [n, options] of ``book`` without what the script forbids at ``leavable`` [n]."""
    if book:
        return logits
    illegal = torch.zeros_like(logits, dtype=torch.bool)
    illegal[:, size] = leavable != 1
    illegal[:, size + 1] = leavable != 2
    return logits.masked_fill(illegal, float("-inf"))


def unrolled_loss(
    head: FeatureHead, target: SpeechLm, rows: Rows, temperature: float, generator: torch.Generator, *, use_kl: bool
) -> Loss:
    """Mean over starts, strides and books; for the log the chance of a match by stride."""
    size = target.config.codebook_size
    with torch.no_grad():
        x = input_vectors(target, rows)
        normed, taps = target.transformer.states(x, head.config.taps)
        sources = torch.stack([*taps, normed], dim=-2).flatten(0, 1)  # [B T, taps + 1, width]
    batch, length = rows.tokens.shape
    starts = torch.randint(1, length - STRIDE, (STARTS,), generator=generator)
    starts = starts + length * torch.randint(0, batch, (STARTS,), generator=generator)
    x, normed = x.flatten(0, 1), normed.flatten(0, 1)
    due, leavable = rows.due.flatten(), rows.leavable.flatten()
    state = head.begin(sources[starts - 1])
    total, count = state.new_zeros((), dtype=torch.float32), 0
    parts: dict[str, Tensor] = {}
    for stride in range(STRIDE):
        at = starts + stride
        state = head.advance(state, x[at])
        decided = head.norm(state)
        matched = decided.new_zeros((), dtype=torch.float32)
        for book in range(target.config.codebooks):
            chosen = (due[at] == book).nonzero()[:, 0]
            with torch.no_grad():
                logits = masked(target.heads[book](normed[at[chosen]]).float(), leavable[at[chosen]], book, size)
                p = (logits / temperature).softmax(-1)
            logits = masked(head.heads[book](decided[chosen]).float(), leavable[at[chosen]], book, size)
            log_q = (logits / temperature).log_softmax(-1)
            if use_kl:
                total = total + torch.nn.functional.kl_div(log_q.clamp(min=-30), p, reduction="sum")
                with torch.no_grad():
                    match = coupled_match(p, log_q.exp())
            else:
                match = coupled_match(p, log_q.exp())
                total = total - match.clamp(min=1e-3).log().sum()
            matched = matched + match.detach().sum()
            count += len(chosen)
        parts[f"match{stride}"] = matched / len(starts)
    return total / count, parts


def train(
    packed: Path,
    codes: Path,
    target_checkpoint: Path,
    checkpoint: Path,
    steps: int = 600,
    batch: int = 4,
    length: int = 768,
    rate: float = 2e-3,
    temperature: float = 0.5,
    seed: int = 1,
) -> None:
    """Train until ``steps``; resumes from ``checkpoint``."""
    torch.set_flush_denormal(True)
    torch.manual_seed(seed)
    target = load_target(target_checkpoint)
    head = FeatureHead(feature_config(target))
    for own, theirs in zip(head.heads, target.heads, strict=True):
        own.load_state_dict(theirs.state_dict())
    print(f"{sum(p.numel() for p in head.parameters()) / 1e6:.1f}M parameters", flush=True)
    matrices = [linear.get_parameter("weight") for linear in (head.join, head.gate_up, head.down)]
    chosen = optimizers(head, matrices, rate, 0.05)
    run = Run(checkpoint, steps, {"lm": head, **{f"optimizer{i}": o for i, o in enumerate(chosen)}})
    run.resume()
    batches = WovenCorpus(packed, codes, VOICES, held_out=False).batches(batch, length, seed + 900 + run.step)
    generator = torch.Generator().manual_seed(seed + run.step)

    def loss_at(step: int) -> Loss:
        return unrolled_loss(head, target, next(batches), temperature, generator, use_kl=step < KL_STEPS * steps)

    fit(head, run, chosen, rate, loss_at)


if __name__ == "__main__":
    typer.run(train)
