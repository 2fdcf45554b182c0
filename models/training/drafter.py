"""Trains drafters to match a trained target on what the target says itself (``on_policy``), as deployed.

    python -m models.training.drafter SPOKEN TARGET_CHECKPOINT CHECKPOINT --steps 2000 --kinds medusa,early-exit [--start-from OTHER]

All kinds of one run share the target's pass. Loss: -log of the chance that both take the same token under the same noise, at the deployed
temperature; KL first for a drafter that begins from nothing, while the two are far apart. ``--loss tv`` is that of SpeechSpec, to compare.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
import typer
from torch import Tensor, nn
from torch.nn import functional as F

from models.exit_head import ExitConfig, ExitHead
from models.medusa import MedusaConfig, MedusaHeads
from models.speech_lm import ConditionConfig, SpeechLm, SpeechLmConfig
from models.training.acceptance import coupled_match
from models.training.fit import Loss, fit, optimizers
from models.training.lm_loss import book_logits, input_vectors, lm_matrices
from models.training.loop import Run
from models.training.target import VOICES, target_config, with_voices
from models.training.woven import Rows, WovenCorpus
from models.transformer_config import TransformerConfig
from tts_spec.text.symbols import TABLE_SIZE

Drafter = SpeechLm | MedusaHeads | ExitHead

KINDS = ("model", "feature", "medusa", "early-exit")
LOSSES = ("match", "tv")  # -log J of coupled sampling; 0.1 cross-entropy + 0.9 total variation (SpeechSpec)
KL_STEPS = 0.15  # share of the steps trained with KL
LIKELIEST = 64  # options the loss looks at; the others have next to no mass at the deployed temperature
KNOWN_RUN = 2.5  # mean of positions in a row whose states the drafter knows, as when a round has accepted so many
LONGEST_GAP = 5  # of positions drafted after them


def drafter_config(kind: str, target: SpeechLmConfig) -> SpeechLmConfig:
    """Sizes of the starter drafters. ``model``: a small language model; ``feature``: the same, told the target's states."""
    transformer = TransformerConfig(width=192, layers=2, heads=3, kv_heads=1, hidden=512)
    large = target.transformer
    taps = (large.layers // 3, 2 * large.layers // 3 + 1)
    condition = ConditionConfig(large.width, taps) if kind == "feature" else None
    return SpeechLmConfig(TABLE_SIZE, voices=target.voices, transformer=transformer, condition=condition)


def untrained(kind: str, target: SpeechLm) -> Drafter:
    """A drafter that begins from nothing."""
    large = target.config.transformer
    if kind == "medusa":
        return MedusaHeads(MedusaConfig(large.width))
    if kind == "early-exit":
        head = ExitHead(ExitConfig(large.width, max(1, large.layers // 4)))
        head.norm.load_state_dict(target.transformer.norm.state_dict())
        return head
    return SpeechLm(drafter_config(kind, target.config))


def new_drafter(kind: str, target: SpeechLm, begun: Mapping[str, Drafter]) -> Drafter:
    """As far as it was ``begun``; ``feature`` may begin with the weights of ``model``; else untrained."""
    if kind in begun:
        return begun[kind]
    drafter = untrained(kind, target)
    if kind == "feature" and "model" in begun:
        drafter.load_state_dict(drafter.state_dict() | begun["model"].state_dict())
    return drafter


def matrices(drafter: Drafter) -> list[nn.Parameter]:
    """Those that Muon trains."""
    return lm_matrices(drafter) if isinstance(drafter, SpeechLm) else drafter.matrices


def load_target(checkpoint: Path) -> SpeechLm:
    """The target of a training checkpoint, frozen; it may have fewer layers and voices than targets have now."""
    weights = torch.load(checkpoint, map_location="cpu", weights_only=True)["parts"]["lm"]
    layers = sum(name.endswith(".down.weight") for name in weights)
    lm = SpeechLm(target_config(layers, len(weights["voices.weight"])))
    lm.load_state_dict(weights)
    return lm.eval().requires_grad_(False)


def load_drafters(checkpoint: Path, target: SpeechLm) -> dict[str, Drafter]:
    """The drafters of a training checkpoint, by kind; they get to know the voices of ``target`` that they do not."""
    parts = torch.load(checkpoint, map_location="cpu", weights_only=True)["parts"]
    drafters = {}
    for kind in (kind for kind in KINDS if kind in parts):
        drafters[kind] = untrained(kind, target)
        weights = parts[kind]
        if isinstance(drafters[kind], SpeechLm):
            weights = with_voices(weights, target.config.voices)
        drafters[kind].load_state_dict(weights)
    return drafters


def known_states(shape: torch.Size, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(position of the last known states before each input, positions since then), both int64 [B, T]; age -1 where there are none.

    Runs of known positions alternate with gaps, as rounds that accept and draft do in deployment.
    """
    batch, length = shape
    known = torch.zeros(shape, dtype=torch.bool)
    for row in range(batch):
        at = 0
        while at < length:
            run = 1 + int(torch.empty(()).geometric_(1 / KNOWN_RUN, generator=generator).item() - 1)
            known[row, at : at + run] = True
            at += run + int(torch.randint(1, LONGEST_GAP + 1, (), generator=generator))
    places = torch.arange(length).expand(shape)
    last = torch.where(known, places, -1).cummax(dim=1).values
    before = F.pad(last[:, :-1], (1, 0), value=-1)
    return before.clamp(min=0), torch.where(before >= 0, places - 1 - before, -1)


def drafter_states(drafter: SpeechLm, rows: Rows, states: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(hidden states [B, T, width], ages [B, T]); ``states`` [B, T, taps + 1, width of the target]."""
    x = input_vectors(drafter, rows)
    ages = torch.full(rows.is_phoneme.shape, -1)
    if drafter.condition is not None:
        places, ages = known_states(rows.is_phoneme.shape, generator)
        told = states[torch.arange(len(places))[:, None], places]
        x = x + drafter.condition(told, ages.clamp(min=0)) * (ages >= 0)[..., None]
    return drafter.transformer(x), ages


class Guesses(NamedTuple):
    """One guess of the decision at every position."""

    kind: str
    name: str  # in the log
    hidden: Tensor  # [B, T, width]
    heads: SpeechLm  # whose heads make logits of it
    weight: float
    ages: Tensor | None = None  # [B, T] of the states it was told


def guesses(
    kind: str,
    drafter: Drafter,
    target: SpeechLm,
    rows: Rows,
    residuals: Mapping[int, Tensor],
    normed: Tensor,
    generator: torch.Generator,
) -> list[Guesses]:
    """All of ``drafter``; ``residuals`` of the target by number of layers, ``normed`` its hidden states, [B, T, width] each."""
    if isinstance(drafter, ExitHead):
        return [Guesses(kind, kind, drafter(residuals[drafter.config.layers]), target, 1.0)]
    if isinstance(drafter, MedusaHeads):
        offsets = range(1, drafter.config.offsets + 1)
        guessed = [F.pad(drafter(normed[:, :-offset], offset), (0, 0, offset, 0)) for offset in offsets]
        return [
            Guesses(kind, f"{kind}+{offset}", hidden, target, 1 / len(offsets))
            for offset, hidden in zip(offsets, guessed, strict=True)
        ]
    condition = drafter.config.condition
    told = normed if condition is None else torch.stack([*(residuals[tap] for tap in condition.taps), normed], dim=-2)
    hidden, ages = drafter_states(drafter, rows, told, generator)
    return [Guesses(kind, kind, hidden, drafter, 1.0, None if condition is None else ages)]


def layers_seen(drafters: Mapping[str, Drafter]) -> list[int]:
    """Numbers of layers of the target after which some drafter wants the residual."""
    seen = set[int]()
    for drafter in drafters.values():
        if isinstance(drafter, ExitHead):
            seen.add(drafter.config.layers)
        elif isinstance(drafter, SpeechLm) and drafter.config.condition is not None:
            seen.update(drafter.config.condition.taps)
    return sorted(seen)


def distillation_loss(
    drafters: Mapping[str, Drafter],
    target: SpeechLm,
    rows: Rows,
    temperature: float,
    generator: torch.Generator,
    by_kl: tuple[str, ...] = (),
    by_tv: bool = False,
) -> Loss:
    """Sum over ``drafters`` of the mean over decisions; for the log the chance of a match by codebook, and by age of the states known or
    by offset from them.

    ``by_kl``: the drafters whose loss is KL; ``by_tv``: the others have the loss ``tv``, else ``match``.
    """
    layers = layers_seen(drafters)
    with torch.no_grad():
        normed, made = target.transformer.states(input_vectors(target, rows), layers)
    residuals = dict(zip(layers, made, strict=True))
    all_guesses = [
        each
        for kind, drafter in drafters.items()
        for each in guesses(kind, drafter, target, rows, residuals, normed, generator)
    ]
    total = normed.new_zeros((), dtype=torch.float32)
    count = rows.due.numel()
    parts: dict[str, Tensor] = {}
    matched = {each.name: torch.zeros(rows.due.shape) for each in all_guesses}
    for book in range(target.config.codebooks):
        due = rows.due == book
        with torch.no_grad():
            p = (book_logits(target, normed, rows, book)[0] / temperature).softmax(-1)
        for each in all_guesses:
            log_q = (book_logits(each.heads, each.hidden, rows, book)[0] / temperature).log_softmax(-1)
            q = log_q.exp()
            likely = torch.maximum(p, q.detach()).topk(min(LIKELIEST, p.shape[-1]), dim=-1).indices
            match = coupled_match(p.gather(-1, likely), q.gather(-1, likely))
            if each.kind in by_kl:
                loss = F.kl_div(log_q.clamp(min=-30), p, reduction="sum")
            elif by_tv:
                loss = -0.1 * (p * log_q.clamp(min=-30)).sum() + 0.45 * (p - q).abs().sum()
            else:
                loss = -match.clamp(min=1e-3).log().sum()
            total = total + each.weight * loss / count
            matched[each.name][due] = match.detach()
    for each in all_guesses:
        match = matched[each.name]
        if each.name == each.kind:
            for book in range(target.config.codebooks):
                parts[f"{each.name}.{book}"] = match[rows.due == book].mean()
        else:
            parts[each.name] = match.mean()
        if each.ages is not None:
            for age in range(LONGEST_GAP):
                parts[f"{each.name}.age{age}"] = match[each.ages == age].mean()
    return total, parts


def train(
    spoken: Path,
    target_checkpoint: Path,
    checkpoint: Path,
    steps: int = 2000,
    batch: int = 4,
    length: int = 1024,
    rate: float = 2e-3,
    temperature: float = 0.5,
    seed: int = 1,
    kinds: str = ",".join(KINDS),
    start_from: Path | None = None,
    loss: str = LOSSES[0],
) -> None:
    """Train until ``steps``; resumes from ``checkpoint``. ``start_from``: checkpoint of drafters whose weights a new run begins with."""
    if loss not in LOSSES:
        raise typer.BadParameter(f"loss is {loss!r}; allowed: {', '.join(LOSSES)}")
    if unknown := set(kinds.split(",")) - set(KINDS):
        raise typer.BadParameter(f"kinds has {', '.join(sorted(unknown))}; allowed: {', '.join(KINDS)}")
    torch.set_flush_denormal(True)
    torch.manual_seed(seed)
    target = load_target(target_checkpoint)
    begun = load_drafters(start_from, target) if start_from is not None else {}
    drafters = {kind: new_drafter(kind, target, begun) for kind in kinds.split(",")}
    for kind, drafter in drafters.items():
        print(f"{kind}: {sum(p.numel() for p in drafter.parameters()) / 1e6:.1f}M parameters", flush=True)
    chosen = [made for each in drafters.values() for made in optimizers(each, matrices(each), rate, 0.05)]
    run = Run(checkpoint, steps, {**drafters, **{f"optimizer{i}": o for i, o in enumerate(chosen)}})
    run.resume()
    voices = VOICES[: target.config.voices]
    corpus = WovenCorpus(spoken, spoken / "codes.npz", voices, held_out=False)
    batches = corpus.batches(batch, length, seed + 500 + run.step)
    generator = torch.Generator().manual_seed(seed + run.step)
    fresh = tuple(kind for kind in drafters if kind not in begun and not (kind == "feature" and "model" in begun))

    def loss_at(step: int) -> Loss:
        by_kl = fresh if step < KL_STEPS * steps else ()
        return distillation_loss(drafters, target, next(batches), temperature, generator, by_kl, loss == "tv")

    fit(nn.ModuleDict(drafters), run, chosen, rate, loss_at)


if __name__ == "__main__":
    typer.run(train)
