"""Distils the drafter from a trained target on the target's own training stream.

    python -m models.training.drafter PACKED CODES.npz TARGET_CHECKPOINT CHECKPOINT --steps 1500

Loss: 0.3 cross-entropy with the data + 0.7 total variation to the target's distribution at the deployed temperature (the share of
drafts that would be refused, Leviathan et al. 2023), KL first while the two are far apart.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
import typer
from torch import Tensor
from torch.nn import functional as F

from models.speech_lm import SpeechLm, SpeechLmConfig
from models.training.fit import Loss, fit, optimizers
from models.training.lm_loss import book_logits, hidden_states, lm_matrices
from models.training.loop import Run
from models.training.target import VOICES, target_config
from models.training.woven import Rows, WovenCorpus
from models.transformer_config import TransformerConfig
from tts_spec.text.symbols import TABLE_SIZE

KL_STEPS = 0.15  # share of the steps trained with KL


def drafter_config(voices: int = len(VOICES)) -> SpeechLmConfig:
    """Sizes of the starter drafter."""
    transformer = TransformerConfig(width=192, layers=2, heads=3, kv_heads=1, hidden=512)
    return SpeechLmConfig(symbols=TABLE_SIZE, voices=voices, transformer=transformer)


def load_target(checkpoint: Path) -> SpeechLm:
    """The target of a training checkpoint, frozen; it may have fewer layers than targets have now."""
    weights = torch.load(checkpoint, map_location="cpu", weights_only=True)["parts"]["lm"]
    config = target_config()
    layers = sum(name.endswith(".down.weight") for name in weights)
    lm = SpeechLm(replace(config, transformer=replace(config.transformer, layers=layers)))
    lm.load_state_dict(weights)
    return lm.eval().requires_grad_(False)


def distillation_loss(
    drafter: SpeechLm, target: SpeechLm, rows: Rows, temperature: float, *, use_kl: bool
) -> tuple[Tensor, dict[str, Tensor]]:
    """(loss, parts for the log): mean over decisions; ``accept`` is 1 - total variation."""
    with torch.no_grad():
        known = hidden_states(target, rows)
    own = hidden_states(drafter, rows)
    total = own.new_zeros((), dtype=torch.float32)
    count = 0
    parts: dict[str, Tensor] = {}
    for book in range(drafter.config.codebooks):
        with torch.no_grad():
            p = (book_logits(target, known, rows, book)[0] / temperature).softmax(-1)
        logits, decisions = book_logits(drafter, own, rows, book)
        log_q = (logits / temperature).log_softmax(-1)
        hits = F.cross_entropy(logits, decisions, reduction="sum")
        apart = (p - log_q.exp()).abs().sum() / 2
        kl = F.kl_div(log_q.clamp(min=-30), p, reduction="sum")
        total = total + 0.3 * hits + 0.7 * (kl if use_kl else 3 * apart)
        count += len(decisions)
        parts[f"accept{book}"] = 1 - apart.detach() / len(decisions)
    return total / count, parts


def train(
    packed: Path,
    codes: Path,
    target_checkpoint: Path,
    checkpoint: Path,
    steps: int = 1500,
    batch: int = 4,
    length: int = 1024,
    rate: float = 4e-3,
    temperature: float = 0.8,
    seed: int = 1,
    start_from: Path | None = None,
) -> None:
    """Train until ``steps``; resumes from ``checkpoint``. ``start_from``: checkpoint of a drafter whose weights a new run begins with."""
    torch.set_flush_denormal(True)
    torch.manual_seed(seed)
    target = load_target(target_checkpoint)
    drafter = SpeechLm(drafter_config())
    print(f"{sum(p.numel() for p in drafter.parameters()) / 1e6:.1f}M parameters", flush=True)
    if start_from is not None:
        drafter.load_state_dict(torch.load(start_from, map_location="cpu", weights_only=True)["parts"]["lm"])
    chosen = optimizers(drafter, lm_matrices(drafter), rate, 0.05)
    run = Run(checkpoint, steps, {"lm": drafter, **{f"optimizer{i}": o for i, o in enumerate(chosen)}})
    run.resume()
    batches = WovenCorpus(packed, codes, VOICES, held_out=False).batches(batch, length, seed + 500 + run.step)

    def loss_at(step: int) -> Loss:
        return distillation_loss(drafter, target, next(batches), temperature, use_kl=step < KL_STEPS * steps)

    fit(drafter, run, chosen, rate, loss_at)


if __name__ == "__main__":
    typer.run(train)
