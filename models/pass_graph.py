"""Decoding passes of static shape, replayed as CUDA graphs: launching some hundred kernels one by one costs more than they do.

A pass of streams with 1 to MAX_ROWS rows each is padded to a bucket: the slots from 0 on, to a power of two, by 8 or 16 rows. What
differs from pass to pass (inputs, lengths, positions, the tree, the codebook due) lies in tensors of the bucket; a graph is captured where
a bucket is used first. Padded rows write into a slot that no stream has, and nobody reads what they give.

Promise. A pass that fills its bucket has, bit for bit, what the same operators give one by one (``EagerGraph``, which is how the CPU tests
it). In one bucket a row's result depends on its own stream alone: the shapes of all products are the same whoever is there, and plain
decoding (1 row) and up to 7 drafts share a bucket, so on CUDA their tokens are equal as long as the libraries' kernels sum each row in an
order of its own (``tests/models/test_cuda.py`` checks that on the device). Between buckets results may round differently. Knows no
sampling and no sessions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from models.kv_cache import QUERY_MULTIPLE, KvCache, PassLayout
from models.rope import rope_table
from models.slots import MAX_ROWS, chain, check_counts, check_parents
from models.speech_lm import SpeechLm

ROWS = (8, MAX_ROWS)
MOST_BUCKETS = 32  # captured at once; the one not used for longest goes
WARM_UP = 3  # runs before a capture: libraries choose their kernels and take their memory

Floats = npt.NDArray[np.float32]
Outputs = tuple[Tensor, ...]


class Graph(Protocol):
    """A function without arguments over fixed tensors."""

    def replay(self) -> Outputs:
        """Run it again; the outputs hold until the next time."""


GraphMaker = Callable[[Callable[[], Outputs]], Graph]


class EagerGraph:
    """The same without a graph."""

    def __init__(self, body: Callable[[], Outputs]) -> None:
        self.replay = body


class CudaGraph:
    """A function captured at once; its tensors must keep their places, and it must not look at their values."""

    def __init__(self, body: Callable[[], Outputs]) -> None:
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(WARM_UP):
                body()
        torch.cuda.current_stream().wait_stream(beside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._outputs = body()

    def replay(self) -> Outputs:
        """See ``Graph.replay``."""
        self._graph.replay()
        return self._outputs


@dataclass(frozen=True, slots=True)
class _Buffers:
    """What a pass of B slots by R rows is given; padded rows have ``real`` False, a path of their own and any input."""

    x: Tensor  # [B R, width]
    starts: Tensor  # [B] committed positions of each slot
    positions: Tensor  # [B, R] in the stream; siblings of a tree share one
    paths: Tensor  # [B, R, R] whether row i sees row j of its own stream, itself included
    real: Tensor  # [B, R]
    due: Tensor  # [B R] codebook

    @classmethod
    def empty(cls, batch: int, rows: int, width: int, dtype: torch.dtype, device: torch.device) -> _Buffers:
        return cls(
            torch.zeros(batch * rows, width, dtype=dtype, device=device),
            torch.zeros(batch, dtype=torch.int64, device=device),
            torch.zeros(batch, rows, dtype=torch.int64, device=device),
            torch.zeros(batch, rows, rows, dtype=torch.bool, device=device),
            torch.zeros(batch, rows, dtype=torch.bool, device=device),
            torch.zeros(batch * rows, dtype=torch.int64, device=device),
        )

    def fill(self, *values: npt.NDArray[np.generic]) -> None:
        """Write all of them, in the order of the fields."""
        for name, value in zip(self.__slots__, values, strict=True):
            getattr(self, name).copy_(torch.from_numpy(value))


class PassGraphs:
    """Passes of one model over one cache. The cache's last slot is the scratch of padded rows."""

    def __init__(
        self,
        lm: SpeechLm,
        cache: KvCache,
        taps: Sequence[int] = (),
        make_graph: GraphMaker = CudaGraph,
        most: int = MOST_BUCKETS,
    ) -> None:
        self._lm = lm
        self._cache = cache
        self._taps = tuple(taps)
        self._make_graph = make_graph
        self._most = most
        self._buckets: OrderedDict[tuple[int, int, int | None], tuple[_Buffers, Graph]] = OrderedDict()
        self._scratch = len(cache.lengths) - 1

    @property
    def buckets(self) -> tuple[tuple[int, int, int | None], ...]:
        """Those there are, as (slots, rows, layers), the one used last at the end."""
        return tuple(self._buckets)

    @torch.inference_mode()
    def __call__(
        self,
        x: Floats,
        counts: Sequence[int],
        parents: Sequence[int] | None,
        due: npt.NDArray[np.int64],
        layers: int | None = None,
    ) -> tuple[Floats, Floats]:
        """A pass as ``Transformer.step`` does it, heads included -> (features [N, taps + 1, width], logits [N, codebook_size + 2]).

        With ``layers`` only so many are run and there are no logits: (residuals [N, 1, width], [N, 0]). Raises ValueError for counts and
        parents that one pass cannot take.
        """
        check_counts(counts)
        check_parents(counts, parents if parents is not None else chain(counts))
        batch, rows = self._size(counts)
        buffers, graph = self._bucket(batch, rows, layers)
        number = np.zeros(batch, np.int64)
        number[: len(counts)] = counts[:batch]
        real = np.arange(rows) < number[:, None]  # [B, R]
        starts = np.array(self._cache.lengths[:batch])
        paths = np.repeat(np.tri(rows, dtype=bool)[None], batch, axis=0)
        if parents is not None:
            _cut_to_tree(paths, counts, parents)
        # A position is the number of those before it in its path.
        positions = starts[:, None] + paths.sum(-1) - 1
        flat = real.ravel()
        inputs = np.zeros((batch * rows, x.shape[1]), np.float32)
        inputs[flat] = x
        books = np.zeros(batch * rows, np.int64)
        books[flat] = due
        buffers.fill(inputs, starts, positions, paths, real, books)
        features, logits = graph.replay()
        self._cache.advance(counts)
        return features.float().cpu().numpy()[flat], logits.float().cpu().numpy()[flat]

    def _size(self, counts: Sequence[int]) -> tuple[int, int]:
        """(slots, rows) of the bucket that holds ``counts``."""
        last = max(slot for slot, count in enumerate(counts) if count)
        batch = min(1 << last.bit_length(), self._scratch)
        if last >= batch:
            raise ValueError(f"counts has rows in slot {last}; allowed: slots below {batch}, the last is the padding's")
        return batch, next(rows for rows in ROWS if max(counts) <= rows)

    def _bucket(self, batch: int, rows: int, layers: int | None) -> tuple[_Buffers, Graph]:
        key = batch, rows, layers
        if key not in self._buckets:
            if len(self._buckets) >= self._most:
                self._buckets.popitem(last=False)
            weight = self._lm.tokens.weight
            buffers = _Buffers.empty(batch, rows, weight.shape[1], self._cache.store.dtype, weight.device)
            # Nothing is real yet: what the capture's own runs write is the scratch's.
            self._buckets[key] = buffers, self._make_graph(lambda: self._body(buffers, layers))
        self._buckets.move_to_end(key)
        return self._buckets[key]

    def _body(self, buffers: _Buffers, layers: int | None) -> Outputs:
        """What a graph holds."""
        transformer = self._lm.transformer
        layout = self._layout(buffers)
        x, residuals = buffers.x, []
        for index, block in enumerate(transformer.layers[:layers]):
            x = block.step(x, index, self._cache, layout)
            residuals.append(x)
        if layers is not None:
            return x[:, None], x.new_empty(len(x), 0)
        hidden = transformer.norm(x)
        size = self._lm.config.codebook_size
        made = []
        for head in cast("list[nn.Linear]", list(self._lm.heads)):
            logits = head(hidden)
            made.append(nn.functional.pad(logits, (0, size + 2 - logits.shape[1]), value=float("-inf")))
        chosen = torch.stack(made, dim=1).gather(1, buffers.due[:, None, None].expand(-1, 1, size + 2))[:, 0]
        return torch.stack([*(residuals[tap - 1] for tap in self._taps), hidden], dim=1), chosen

    def _layout(self, buffers: _Buffers) -> PassLayout:
        """See ``KvCache.layout``: the same of what lies in tensors."""
        cache, config = self._cache, self._cache.config
        capacity, window = cache.capacity, config.window
        batch, rows = buffers.positions.shape
        device = buffers.x.device
        ring = torch.arange(capacity, device=device)
        positions = buffers.positions[:, :, None]  # [B, R, 1]
        last = buffers.starts[:, None, None] - 1
        held = (
            last - (last - ring) % capacity
        )  # [B, 1, capacity] the committed position in each place, below 0 where none was
        visible = (held >= 0) & (held > positions - window)
        places = (buffers.starts[:, None] + torch.arange(rows, device=device)) % capacity  # [B, R] of the new rows
        near = buffers.paths & (buffers.positions[:, None] > positions - window)  # [B, R, R]
        # A new row's place holds no committed position that is seen: it would lie a whole ring back.
        own = near.to(torch.int8).new_zeros(batch, rows, capacity)
        own.scatter_(2, places[:, None].expand(-1, rows, -1), near.to(torch.int8))
        visible = visible | own.bool() | ~buffers.real[:, :, None]  # padding sees everything: never an empty row
        groups = config.heads // config.kv_heads
        mask = torch.zeros(batch, 1, -(-rows * groups // QUERY_MULTIPLE) * QUERY_MULTIPLE, capacity, device=device)
        blocked = torch.zeros_like(visible, dtype=mask.dtype).masked_fill(~visible, float("-inf"))
        mask[:, 0, : rows * groups] = blocked.repeat_interleave(groups, dim=1)
        slots = torch.arange(batch, device=device)[:, None]
        scratch = self._scratch * capacity + torch.arange(batch * rows, device=device).view(batch, rows) % capacity
        cos, sin = rope_table(buffers.positions.flatten(), config.head_width, config.rope_base)
        half = config.head_width // 2
        sin = torch.cat([-sin[:, :half], sin[:, half:]], dim=1)
        dtype = cache.store.dtype
        return PassLayout(
            cos=cos[:, None].to(dtype),
            sin=sin[:, None].to(dtype),
            places=torch.where(buffers.real, slots * capacity + places, scratch).flatten(),
            slots=slice(0, batch),
            spread=None,
            gather=None,
            rows=rows,
            mask=mask.to(dtype),
        )


def _cut_to_tree(paths: npt.NDArray[np.bool_], counts: Sequence[int], parents: Sequence[int]) -> None:
    """Let the real rows of chains ``paths`` [B, R, R] see their own path alone: themselves and what their parent sees."""
    first = 0
    for slot, count in enumerate(counts):
        for row, parent in enumerate(parents[first : first + count]):
            paths[slot, row] = paths[slot, parent] if parent >= 0 else False
            paths[slot, row, row] = True
        first += count
