"""Trains a drafter to match a trained target on what the target says itself (``on_policy``), as deployed.

    python -m models.training.drafter SPOKEN TARGET_CHECKPOINT CHECKPOINT --steps 800 [--conditioned] [--start-from OTHER]

Loss: KL first while the two are far apart, then -log of the chance that both take the same token under the same noise, at the deployed
temperature. A conditioned drafter (``feature``) is told the target's states before some of its inputs, as at the start of every round.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
import typer
from torch import Tensor
from torch.nn import functional as F

from models.speech_lm import ConditionConfig, SpeechLm, SpeechLmConfig
from models.training.acceptance import coupled_match
from models.training.fit import Loss, fit, optimizers
from models.training.lm_loss import book_logits, input_vectors, lm_matrices
from models.training.loop import Run
from models.training.target import VOICES, target_config
from models.training.woven import Rows, WovenCorpus
from models.transformer_config import TransformerConfig
from tts_spec.text.symbols import TABLE_SIZE

KL_STEPS = 0.15  # share of the steps trained with KL
KNOWN = 0.36  # share of inputs before which the target's states are known: one a round
LIKELIEST = 64  # options the loss looks at; the others have next to no mass at the deployed temperature


def drafter_config(target: SpeechLm, *, conditioned: bool) -> SpeechLmConfig:
    """Sizes of the starter drafters."""
    transformer = TransformerConfig(width=192, layers=2, heads=3, kv_heads=1, hidden=512)
    large = target.config.transformer
    taps = (large.layers // 3, 2 * large.layers // 3 + 1)
    condition = ConditionConfig(large.width, taps) if conditioned else None
    return SpeechLmConfig(TABLE_SIZE, voices=len(VOICES), transformer=transformer, condition=condition)


def load_target(checkpoint: Path) -> SpeechLm:
    """The target of a training checkpoint, frozen; it may have fewer layers than targets have now."""
    weights = torch.load(checkpoint, map_location="cpu", weights_only=True)["parts"]["lm"]
    config = target_config()
    layers = sum(name.endswith(".down.weight") for name in weights)
    lm = SpeechLm(replace(config, transformer=replace(config.transformer, layers=layers)))
    lm.load_state_dict(weights)
    return lm.eval().requires_grad_(False)


def load_drafter(checkpoint: Path, target: SpeechLm, *, conditioned: bool) -> SpeechLm:
    """The drafter of a training checkpoint; one without a condition may become one with, that does the same at first."""
    lm = SpeechLm(drafter_config(target, conditioned=conditioned))
    weights = torch.load(checkpoint, map_location="cpu", weights_only=True)["parts"]["lm"]
    fresh = {name: value for name, value in lm.state_dict().items() if name.startswith("condition.")}
    lm.load_state_dict(fresh | weights)
    return lm


def distillation_loss(
    drafter: SpeechLm, target: SpeechLm, rows: Rows, temperature: float, generator: torch.Generator, *, use_kl: bool
) -> Loss:
    """Mean over decisions; for the log the chance of a match by codebook, and where the target's states are known."""
    with torch.no_grad():
        condition = drafter.config.condition
        normed, taps = target.transformer.states(input_vectors(target, rows), condition.taps if condition else ())
    x = input_vectors(drafter, rows)
    known = torch.zeros_like(rows.is_phoneme)
    if drafter.condition is not None:
        states = torch.stack([*taps, normed], dim=-2)[:, :-1]  # [B, T - 1, taps + 1, width]
        told = F.pad(drafter.condition(states), (0, 0, 1, 0))  # of the position before
        known = torch.rand(known.shape, generator=generator) < KNOWN
        x = x + told * known[..., None]
    own = drafter.transformer(x)
    total, count = own.new_zeros((), dtype=torch.float32), 0
    parts: dict[str, Tensor] = {}
    matched_known = own.new_zeros((), dtype=torch.float32)
    for book in range(drafter.config.codebooks):
        with torch.no_grad():
            p = (book_logits(target, normed, rows, book)[0] / temperature).softmax(-1)
        log_q = (book_logits(drafter, own, rows, book)[0] / temperature).log_softmax(-1)
        likely = torch.maximum(p, log_q.detach().exp()).topk(LIKELIEST, dim=-1).indices
        p_likely, log_q_likely = p.gather(-1, likely), log_q.gather(-1, likely)
        match = coupled_match(p_likely, log_q_likely.exp())
        kl = F.kl_div(log_q.clamp(min=-30), p, reduction="sum")
        total = total + (kl if use_kl else -match.clamp(min=1e-3).log().sum())
        count += len(match)
        parts[f"match{book}"] = match.detach().mean()
        matched_known = matched_known + (match.detach() * known[rows.due == book]).sum()
    if drafter.condition is not None:
        parts["known"] = matched_known / known.sum()
    return total / count, parts


def train(
    spoken: Path,
    target_checkpoint: Path,
    checkpoint: Path,
    steps: int = 800,
    batch: int = 4,
    length: int = 1024,
    rate: float = 3e-3,
    temperature: float = 0.5,
    seed: int = 1,
    conditioned: bool = False,
    start_from: Path | None = None,
) -> None:
    """Train until ``steps``; resumes from ``checkpoint``. ``start_from``: checkpoint of a drafter whose weights a new run begins with."""
    torch.set_flush_denormal(True)
    torch.manual_seed(seed)
    target = load_target(target_checkpoint)
    drafter = SpeechLm(drafter_config(target, conditioned=conditioned))
    if start_from is not None:
        drafter = load_drafter(start_from, target, conditioned=conditioned)
    print(f"{sum(p.numel() for p in drafter.parameters()) / 1e6:.1f}M parameters", flush=True)
    chosen = optimizers(drafter, lm_matrices(drafter), rate, 0.05)
    run = Run(checkpoint, steps, {"lm": drafter, **{f"optimizer{i}": o for i, o in enumerate(chosen)}})
    run.resume()
    corpus = WovenCorpus(spoken, spoken / "codes.npz", VOICES, held_out=False)
    batches = corpus.batches(batch, length, seed + 500 + run.step)
    generator = torch.Generator().manual_seed(seed + run.step)
    kl_until = 0 if start_from is not None else KL_STEPS * steps

    def loss_at(step: int) -> Loss:
        return distillation_loss(drafter, target, next(batches), temperature, generator, use_kl=step < kl_until)

    fit(drafter, run, chosen, rate, loss_at)


if __name__ == "__main__":
    typer.run(train)
