"""One training run of a language model or of what belongs to it: schedule, backward, clipping, steps of the optimisers, log.

Knows a loss by its function; knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from models.training.loop import Run, warmup_cosine

Loss = tuple[Tensor, dict[str, Tensor]]  # what is minimised, and values for the log


def optimizers(
    module: nn.Module, matrices: Sequence[nn.Parameter], rate: float, decay: float
) -> list[torch.optim.Optimizer]:
    """Muon (Jordan et al. 2024), scaled as AdamW, for ``matrices`` of ``module``; AdamW for the rest, such as tables, heads and norms."""
    chosen = {id(p) for p in matrices}
    others = [p for p in module.parameters() if id(p) not in chosen]
    muon = torch.optim.Muon(matrices, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
    return [muon, torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.95), weight_decay=decay)] if others else [muon]


def fit(
    module: nn.Module,
    run: Run,
    chosen: Sequence[torch.optim.Optimizer],
    rate: float,
    loss_at: Callable[[int], Loss],
    after: Callable[[int], None] = lambda _: None,
) -> None:
    """Train ``module`` through the steps left of ``run``. ``after`` is called with the number of steps done."""
    for step in run.steps():
        for optimizer in chosen:
            for group in optimizer.param_groups:
                group["lr"] = rate * warmup_cosine(step, run.total, warmup=50, floor=0.02)
        with torch.autocast("cpu", torch.bfloat16):
            loss, parts = loss_at(step)
        for optimizer in chosen:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        for optimizer in chosen:
            optimizer.step()
        run.note(loss=loss.detach(), norm=norm, **parts)
        after(step + 1)
