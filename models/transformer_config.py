"""Sizes of a transformer. Knows no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """Sizes of a transformer; ``window`` counts positions a row sees, itself included."""

    width: int = 384
    layers: int = 7
    heads: int = 6
    kv_heads: int = 2
    hidden: int = 1024  # of the SwiGLU MLP
    window: int = 256
    rope_base: float = 10_000.0

    def __post_init__(self) -> None:
        for name in ("width", "layers", "heads", "kv_heads", "hidden", "window"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; allowed: a whole number from 1")
        if self.width % self.heads or self.head_width % 2:
            raise ValueError(f"heads is {self.heads}; it must divide width {self.width} into even parts")
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads is {self.kv_heads}; it must divide heads {self.heads}")

    @property
    def head_width(self) -> int:
        return self.width // self.heads
