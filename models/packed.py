"""Weights laid out for the compiled kernels, and the caches and passes that belong to them: decoding on the CPU.

bfloat16 weights are multiplied with rows rounded to bfloat16, as in training under autocast; float32 weights with float32 rows. Sums are
float32 in both. Knows modules and arrays; knows no tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from models.attention import FLOAT_COLUMNS, PAIR_COLUMNS
from models.kernels import Network, decide, run_pass
from models.products import BLOCK, Floats, Words, product
from models.slots import MAX_ROWS, Slots, check_counts, check_parents
from models.transformer_config import TransformerConfig

if TYPE_CHECKING:
    from models.transformer import Transformer

NO_PARENTS = np.zeros(0, np.int64)
ALIGNMENT = 64  # bytes of a cache line and of a vector


def aligned(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Zeros that begin at a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def can_pack(weight: Tensor) -> bool:
    """Whether the kernels know this weight's device and type."""
    return weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.bfloat16)


def pack(weight: Tensor, outputs: int = 0) -> Words:
    """``weight`` [out, in], bfloat16 or float32 -> the packed matrix [blocks, steps, 64]; ``outputs``: at least so many, zeros past out."""
    count, columns = weight.shape
    blocks = -(-max(count, outputs) // BLOCK)
    pairs = weight.dtype == torch.bfloat16
    per_word = 2 if pairs else 1
    steps = -(-columns // per_word)
    bits = (weight.detach().contiguous().view(torch.int16) if pairs else weight.detach().contiguous()).numpy()
    padded = np.zeros((blocks * BLOCK, steps * per_word), bits.dtype)
    padded[:count, :columns] = bits
    words = padded.view(np.uint32).reshape(blocks, BLOCK, steps).transpose(0, 2, 1)
    made: Words = aligned(words.shape, np.uint32)
    made[...] = words
    return made


class PackedMatrix:
    """One packed weight [out, in], as it is at this moment."""

    def __init__(self, weight: Tensor) -> None:
        self.pairs = weight.dtype == torch.bfloat16
        self.outputs, self.columns = weight.shape
        self.words = pack(weight)

    def __call__(self, x: Floats) -> Floats:
        """Float32 [N, in] -> [N, out]; rows independent of each other."""
        blocks, steps, _ = self.words.shape
        out = np.empty((len(x), blocks * BLOCK), np.float32)
        product(x, self.columns, self.words, self.pairs, np.empty((len(x), steps), np.uint32), out)
        return out[:, : self.outputs]


class PackedCache(Slots):
    """Keys and values of ``slots`` streams in the layout of the kernels: float32, or bfloat16 ``pairs``."""

    def __init__(self, config: TransformerConfig, slots: int, *, pairs: bool) -> None:
        blocks = -(-(config.window + MAX_ROWS) // BLOCK)
        super().__init__(slots, blocks * BLOCK)
        self.config = config
        width, per_word = config.head_width, 2 if pairs else 1
        columns = PAIR_COLUMNS if pairs else FLOAT_COLUMNS
        lead = (config.layers, slots, config.kv_heads)
        self.keys = aligned((*lead, blocks, width // per_word, BLOCK), np.uint32)
        self.values = aligned((*lead, blocks * BLOCK, -(-width // columns) * columns // per_word), np.uint32)

    @property
    def nbytes(self) -> int:
        """Bytes of the preallocated store."""
        return self.keys.nbytes + self.values.nbytes

    @property
    def stores(self) -> tuple[Words, Words]:
        """See ``Slots.stores``."""
        return self.keys, self.values

    def move(self, slot: int, to: int, source: int) -> None:
        """See ``Slots.move``."""
        self.keys[:, slot, :, to // BLOCK, :, to % BLOCK] = self.keys[:, slot, :, source // BLOCK, :, source % BLOCK]
        self.values[:, slot, :, to] = self.values[:, slot, :, source]


class PackedTransformer:
    """A transformer's weights, as they are at this moment, for ``step``."""

    def __init__(self, transformer: Transformer) -> None:
        self.config = config = transformer.config
        blocks = transformer.layers
        self.pairs = blocks[0].down.weight.dtype == torch.bfloat16
        matrices = [
            pack(linear.weight).ravel()
            for block in blocks
            for linear in (block.attention.qkv, block.attention.out, block.gate_up, block.down)
        ]
        self._weights = aligned((sum(len(each) for each in matrices),), np.uint32)
        np.concatenate(matrices, out=self._weights)
        norms = [norm for block in blocks for norm in (block.attention_norm, block.mlp_norm)] + [transformer.norm]
        self._norms = _floats([norm.weight for norm in norms])
        joined = (config.heads + 2 * config.kv_heads, config.head_width)
        self._eps = np.float32(config.norm_eps)
        half = config.head_width // 2
        self._frequencies = config.rope_base ** (-np.arange(half) / half)
        self._biases = np.zeros((0, *joined), np.float32)
        if config.qkv_bias:
            biases = [block.attention.qkv.bias for block in blocks if block.attention.qkv.bias is not None]
            self._biases = _floats(biases).reshape(-1, *joined)
        self._head_norms = np.zeros((0, 2, config.head_width), np.float32)
        if config.qk_norm:
            pairs = [(block.attention.q_norm, block.attention.k_norm) for block in blocks]
            both = [norm.weight for pair in pairs for norm in pair if norm is not None]
            self._head_norms = _floats(both).reshape(-1, 2, config.head_width)

    def cache(self, slots: int) -> PackedCache:
        """An empty cache for ``step``."""
        return PackedCache(self.config, slots, pairs=self.pairs)

    def network(self, cache: PackedCache, heads: PackedHeads, tokens: Floats, counts: Floats) -> Network:
        """For ``kernels.follow``."""
        return (
            tokens, counts, self.config.window, self._frequencies, self._weights, self.pairs, self._norms, self._biases,
            self._head_norms, self._eps, self.config.hidden, self.config.heads, cache.keys, cache.values, heads.words,
            heads.sizes,
        )  # fmt: skip

    def step(
        self,
        x: Floats,
        cache: PackedCache,
        counts: Sequence[int],
        parents: Sequence[int] | None = None,
        taps: Sequence[int] = (),
    ) -> Floats:
        """See ``Transformer.step``: float32 [N, width] -> [N, taps + 1, width], the hidden state last. Overwrites ``x``."""
        return self.finish(x, cache, counts, parents, taps, 0, [])

    def begin(
        self, x: Floats, cache: PackedCache, counts: Sequence[int], layers: int, taps: Sequence[int] = ()
    ) -> Floats:
        """The first ``layers`` layers of ``step`` for chains -> [N, taps + 1, width], the residual last, of later taps nothing.

        The lengths move on; ``finish`` must come before anything else relies on these positions, after ``rewind`` to where they begin.
        """
        check_counts(counts)
        states = np.empty((len(x), len(taps) + 1, self.config.width), np.float32)
        self._run(x, cache, counts, [], None, 0, layers, taps, states)
        cache.advance(counts)
        return states

    def finish(
        self,
        x: Floats,
        cache: PackedCache,
        counts: Sequence[int],
        parents: Sequence[int] | None,
        taps: Sequence[int],
        layers: int,
        begun: Sequence[Floats],
    ) -> Floats:
        """``step`` where some rows have been through the first ``layers`` layers.

        ``begun``: for each slot that has rows what ``begin`` returned for its first ones, which follow each other; empty = none of any.
        """
        check_counts(counts)
        if parents is not None:
            check_parents(counts, parents)
        if len(x) != sum(counts):
            raise ValueError(f"x has {len(x)} rows; counts sum to {sum(counts)}")
        states = np.empty((len(x), len(taps) + 1, self.config.width), np.float32)
        if any(len(each) for each in begun):
            new, first = np.ones(len(x), bool), 0
            for count, each in zip((count for count in counts if count), begun, strict=True):
                states[first : first + len(each)] = each
                new[first : first + len(each)] = False
                first += count
            if new.any():
                made = np.empty((int(new.sum()), *states.shape[1:]), np.float32)
                known = [len(each) for each in begun]
                self._run(x[new], cache, counts, known, parents, 0, layers, taps, made)
                states[new] = made
            x = states[:, -1].copy()
        else:
            layers = 0
        self._run(x, cache, counts, [], parents, layers, self.config.layers, taps, states)
        cache.advance(counts)
        return states

    def _run(
        self,
        x: Floats,
        cache: PackedCache,
        counts: Sequence[int],
        begun: Sequence[int],
        parents: Sequence[int] | None,
        first: int,
        last: int,
        taps: Sequence[int],
        states: Floats,
    ) -> None:
        """Layers ``first`` to ``last`` - 1 of the rows that are not ``begun`` (by slot that has rows; empty = none is)."""
        used = [slot for slot, count in enumerate(counts) if count]
        starts, numbers = [cache.lengths[slot] for slot in used], [counts[slot] for slot in used]
        slots = np.array([used, starts, numbers, begun if begun else [0] * len(used)])
        run_pass(
            x, slots[0], slots[1], slots[2], slots[3], NO_PARENTS if parents is None else np.array(parents),
            self.config.window, self._frequencies, first, last, self._weights, self.pairs, self._norms, self._biases,
            self._head_norms, self._eps, self.config.hidden, self.config.heads, cache.keys, cache.values,
            np.array(taps, np.int64), states,
        )  # fmt: skip


class PackedHeads:
    """A head for each codebook."""

    def __init__(self, heads: Sequence[Tensor]) -> None:
        self.pairs = heads[0].dtype == torch.bfloat16
        self.sizes = np.array([len(head) for head in heads])
        packed = [pack(head, int(self.sizes.max())) for head in heads]
        self.words = aligned((len(heads), *packed[0].shape), np.uint32)
        np.stack(packed, out=self.words)

    def __call__(self, hidden: Floats, due: npt.NDArray[np.int64]) -> Floats:
        """``hidden`` [N, width] of any strides, the codebook ``due`` [N] -> logits [N, longest head], -inf past the end of shorter ones."""
        out = np.empty((len(hidden), int(self.sizes.max())), np.float32)
        decide(hidden, self.words, self.pairs, due, self.sizes, out)
        return out


def _floats(parts: Sequence[Tensor]) -> Floats:
    """Vectors of equal length as an array [number, length]."""
    return torch.stack([part.detach().float() for part in parts]).numpy()
