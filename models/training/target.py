"""Trains the target on a packed and encoded corpus.

    python -m models.training.target PACKED CODES.npz CHECKPOINT --steps 3000

A longer run begins with ``--start-from``, the checkpoint of a shorter one, also of one with fewer layers.
Matrices of the transformer are trained by Muon (Jordan et al. 2024), the rest by AdamW. Validation rows come from held-out utterances.
"""

from __future__ import annotations

from pathlib import Path

import torch
import typer

from models.speech_lm import SpeechLm, SpeechLmConfig
from models.training.lm_loss import decision_loss, hidden_states
from models.training.loop import Run, warmup_cosine
from models.training.woven import WovenCorpus
from models.transformer_config import TransformerConfig
from tts_spec.text.symbols import TABLE_SIZE

VOICES = ("af_heart", "am_michael", "bf_emma", "am_fenrir", "bm_fable")
VALIDATE_EVERY = 250


def target_config(voices: int = len(VOICES)) -> SpeechLmConfig:
    """Sizes of the starter target."""
    return SpeechLmConfig(symbols=TABLE_SIZE, voices=voices, transformer=TransformerConfig(layers=8))


def grown(weights: dict[str, torch.Tensor], layers: int) -> dict[str, torch.Tensor]:
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


def optimizers(lm: SpeechLm, rate: float, decay: float) -> list[torch.optim.Optimizer]:
    """Muon for the transformer's matrices, AdamW for tables, heads and norms."""
    matrices = [p for p in lm.transformer.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    others = [p for p in lm.parameters() if id(p) not in chosen]
    return [
        torch.optim.Muon(matrices, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.95), weight_decay=decay),
    ]


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
    start_from: Path | None = None,
) -> None:
    """Train until ``steps``; resumes from ``checkpoint``. ``start_from``: checkpoint whose weights a new run begins with."""
    torch.set_flush_denormal(True)
    torch.manual_seed(seed)
    lm = SpeechLm(target_config())
    print(f"{sum(p.numel() for p in lm.parameters()) / 1e6:.1f}M parameters", flush=True)
    if start_from is not None:
        saved = torch.load(start_from, map_location="cpu", weights_only=True)["parts"]["lm"]
        lm.load_state_dict(grown(saved, lm.config.transformer.layers))
    chosen = optimizers(lm, rate, decay)
    run = Run(checkpoint, steps, {"lm": lm, **{f"optimizer{i}": o for i, o in enumerate(chosen)}})
    run.resume()
    training = WovenCorpus(packed, codes, VOICES, held_out=False)
    validation = WovenCorpus(packed, codes, VOICES, held_out=True)
    batches = training.batches(batch, length, seed + run.step)
    for step in run.steps():
        for optimizer in chosen:
            for group in optimizer.param_groups:
                group["lr"] = rate * warmup_cosine(step, steps, warmup=50, floor=0.02)
        rows = next(batches)
        with torch.autocast("cpu", torch.bfloat16):
            loss, parts = decision_loss(lm, hidden_states(lm, rows), rows)
        for optimizer in chosen:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(lm.parameters(), 1.0)
        for optimizer in chosen:
            optimizer.step()
        run.note(all=loss.detach(), norm=norm, **parts)
        if (step + 1) % VALIDATE_EVERY == 0:
            print(f"validation at {step + 1}: {validate(lm, validation, batch, length)}", flush=True)


if __name__ == "__main__":
    typer.run(train)
