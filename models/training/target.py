"""Trains the target on a packed and encoded corpus.

    python -m models.training.target PACKED CODES.npz CHECKPOINT --steps 3000

A longer run begins with ``--start-from``, the checkpoint of a shorter one, also of one with fewer layers or voices.
Validation rows come from held-out utterances.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
import typer

from models.speech_lm import SpeechLm, SpeechLmConfig
from models.training.fit import Loss, fit, optimizers
from models.training.lm_loss import decision_loss, hidden_states, lm_matrices
from models.training.loop import Run
from models.training.woven import WovenCorpus
from models.transformer_config import TransformerConfig
from tts_spec.text.symbols import TABLE_SIZE

VOICES = (
    "af_heart",
    "am_michael",
    "bf_emma",
    "am_fenrir",
    "bm_fable",
    "af_bella",
    "bm_george",
)  # new ones last: a target knows the first N
VALIDATE_EVERY = 250


def target_config(layers: int, voices: int = len(VOICES)) -> SpeechLmConfig:
    """Sizes of the starter target."""
    return SpeechLmConfig(symbols=TABLE_SIZE, voices=voices, transformer=TransformerConfig(layers=layers))


def with_voices(weights: Mapping[str, torch.Tensor], voices: int) -> dict[str, torch.Tensor]:
    """Weights of a language model for one that knows ``voices`` voices; each new one begins as the mean of those known."""
    table = weights["voices.weight"]
    new = table.mean(dim=0, keepdim=True).expand(voices - len(table), -1)
    return {**weights, "voices.weight": torch.cat([table, new])}


def grown(weights: Mapping[str, torch.Tensor], layers: int) -> dict[str, torch.Tensor]:
    """Weights of a target for one with up to ``layers`` layers that computes the same: each new layer is a copy of the last whose outputs
    are 0 (block expansion, LLaMA Pro, Wu et al. 2024)."""
    weights = dict(weights)
    prefix = "transformer.blocks."
    last = max(int(name.removeprefix(prefix).split(".")[0]) for name in weights if name.startswith(prefix))
    for name in [name for name in weights if name.startswith(f"{prefix}{last}.")]:
        rest = name.removeprefix(f"{prefix}{last}.")
        for layer in range(last + 1, layers):
            copy = weights[name].clone()
            weights[f"{prefix}{layer}.{rest}"] = (
                copy.zero_() if rest in ("attention.out.weight", "down.weight") else copy
            )
    return weights


@torch.no_grad()
def validate(lm: SpeechLm, corpus: WovenCorpus, batch: int, length: int) -> str:
    """A line of validation losses over 4 fixed batches."""
    sums: dict[str, float] = {}
    batches = corpus.batches(batch, length, seed=77)
    for _ in range(4):
        rows = next(batches)
        with torch.autocast("cpu", torch.bfloat16):
            loss, parts = decision_loss(lm, hidden_states(lm, rows), rows)
        for name, value in {"all": loss, **parts}.items():
            sums[name] = sums.get(name, 0.0) + float(value) / 4
    return "  ".join(f"{name} {value:.3f}" for name, value in sums.items())


def train(
    packed: Path,
    codes: Path,
    checkpoint: Path,
    steps: int = 3000,
    batch: int = 4,
    length: int = 1024,
    rate: float = 2e-3,
    decay: float = 0.05,
    seed: int = 1,
    layers: int = 8,
    start_from: Path | None = None,
) -> None:
    """Train until ``steps``; resumes from ``checkpoint``. ``start_from``: checkpoint whose weights a new run begins with."""
    torch.set_flush_denormal(True)
    torch.manual_seed(seed)
    lm = SpeechLm(target_config(layers))
    print(f"{sum(p.numel() for p in lm.parameters()) / 1e6:.1f}M parameters", flush=True)
    if start_from is not None:
        saved = torch.load(start_from, map_location="cpu", weights_only=True)["parts"]["lm"]
        lm.load_state_dict(with_voices(grown(saved, layers), lm.config.voices))
    chosen = optimizers(lm, lm_matrices(lm), rate, decay)
    run = Run(checkpoint, steps, {"lm": lm, **{f"optimizer{i}": o for i, o in enumerate(chosen)}})
    run.resume()
    validation = WovenCorpus(packed, codes, VOICES, held_out=True)
    batches = WovenCorpus(packed, codes, VOICES, held_out=False).batches(batch, length, seed + run.step)

    def loss_at(step: int) -> Loss:
        rows = next(batches)
        return decision_loss(lm, hidden_states(lm, rows), rows)

    def after(done: int) -> None:
        if done % VALIDATE_EVERY == 0:
            print(f"validation at {done}: {validate(lm, validation, batch, length)}", flush=True)

    fit(lm, run, chosen, rate, loss_at, after)


if __name__ == "__main__":
    typer.run(train)
