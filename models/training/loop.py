"""What every training command shares: the schedule, the checkpoint that survives a kill, the log line a minute.

Knows nothing of the model that is trained.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

SAVE_EVERY_S = 180.0
LOG_EVERY_S = 60.0


def warmup_cosine(step: int, total: int, *, warmup: int = 100, floor: float = 0.05) -> float:
    """Factor of the peak learning rate at ``step``: linear warm-up, then cosine down to ``floor``."""
    if step < warmup:
        return (step + 1) / warmup
    done = min(1.0, (step - warmup) / max(1, total - warmup))
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done))


@dataclass
class Run:
    """One resumable training run. ``parts`` are saved and restored by name (modules, optimisers: anything with state_dict)."""

    path: Path
    total: int
    parts: dict[str, Any]
    step: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def resume(self) -> None:
        """Load ``path`` if it exists and take up its step."""
        if self.path.exists():
            saved = torch.load(self.path, map_location="cpu", weights_only=True)
            for name, part in self.parts.items():
                part.load_state_dict(saved["parts"][name])
            self.step = int(saved["step"])

    def save(self) -> None:
        """Write the checkpoint beside ``path`` and move it into place, so that a kill never leaves half a file."""
        partial = self.path.with_suffix(".partial")
        partial.parent.mkdir(parents=True, exist_ok=True)
        torch.save(
            {"step": self.step, "parts": {name: part.state_dict() for name, part in self.parts.items()}}, partial
        )
        partial.replace(self.path)

    def note(self, **values: float | torch.Tensor) -> None:
        """Add values to the means of the next log line."""
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value)
            self.counts[name] = self.counts.get(name, 0) + 1

    def steps(self) -> Iterator[int]:
        """Yield the steps left, with a progress bar, a log line a minute and a checkpoint every three."""
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        saved = logged = time.monotonic()
        first = self.step
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            task = progress.add_task(self.path.stem, total=self.total, completed=self.step)
            while self.step < self.total:
                yield self.step
                self.step += 1
                progress.update(task, completed=self.step)
                now = time.monotonic()
                if now - logged >= LOG_EVERY_S or self.step == self.total:
                    per_step = (now - logged) / max(1, self.step - first)
                    means = "  ".join(f"{name} {self.sums[name] / self.counts[name]:.4f}" for name in self.sums)
                    print(
                        f"{time.strftime('%H:%M:%S')}  step {self.step}/{self.total}  {per_step:.3f} s/step  {means}",
                        flush=True,
                    )
                    self.sums.clear()
                    self.counts.clear()
                    logged, first = now, self.step
                if now - saved >= SAVE_EVERY_S:
                    self.save()
                    saved = time.monotonic()
        self.save()
