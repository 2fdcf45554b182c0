"""Sizes of a transformer. Knows no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

MAY_MISS = {"may_miss": True}  # bundles written before the field was known lack it


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
    head_dim: int = field(default=0, metadata=MAY_MISS)  # 0 = width / heads
    qkv_bias: bool = field(default=False, metadata=MAY_MISS)  # Qwen2
    qk_norm: bool = field(default=False, metadata=MAY_MISS)  # RMSNorm of every query and key before rotation: Qwen3
    norm_eps: float = field(default=1e-5, metadata=MAY_MISS)

    def __post_init__(self) -> None:
        for name in ("width", "layers", "heads", "kv_heads", "hidden", "window"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; allowed: a whole number from 1")
        if self.head_dim < 0 or self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; allowed: an even number from 2, or 0")
        if not self.head_dim and (self.width % self.heads or self.head_width % 2):
            raise ValueError(f"heads is {self.heads}; it must divide width {self.width} into even parts")
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads is {self.kv_heads}; it must divide heads {self.heads}")

    @property
    def head_width(self) -> int:
        return self.head_dim or self.width // self.heads
