"""One language model's side of live streams: slots of its KV cache and the vectors of each stream's phonemes.

Turns inputs (token, phoneme, frames) into logits, one pass for all streams that take part; rollback is the ``start`` of the next pass.
What a stream gets does not depend on who else is in the pass. Knows no sampling and no script.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from models.kernels import Ints, embed
from models.kv_cache import KvCache
from models.packed import PackedCache
from models.pass_graph import CudaGraph, GraphMaker, PassGraphs
from models.products import Floats
from models.slots import MAX_ROWS, SlotContent
from models.speech_lm import OFFSETS, SpeechLm

Logits = npt.NDArray[np.float32]  # [R, codebook_size + 2]; -inf where the due codebook has no such decision


class StreamInput(NamedTuple):
    """One position's input and what is due there."""

    token: int  # codec token, or NO_TOKEN when the input is the phoneme itself
    phoneme: int  # index of the current phoneme in the stream
    frames: int  # frames of this phoneme begun so far, the frame of ``token`` counted; 0 for a phoneme input
    due: int  # codebook whose token is decided at this position


class LogitSource(Protocol):
    """What a round asks of a model."""

    features: Floats  # [R, taps + 1, width] what the last pass made at each of its inputs: residuals at the taps, the hidden state

    def forward(self, inputs: Sequence[StreamInput], start: int, parents: Sequence[int] | None = None) -> Logits:
        """Logits after each of ``inputs``, at positions ``start`` and after; whatever was fed from ``start`` on is forgotten.

        ``parents``: of a tree of at most MAX_ROWS inputs: for each the one before it in its path, -1 = none; None = a chain.
        """

    def keep(self, start: int, path: Sequence[int]) -> None:
        """Of the tree fed at ``start`` keep the inputs ``path``, root first; the others are forgotten."""


class ConditionedSource(LogitSource, Protocol):
    """A model to whose inputs something may be added."""

    def forward(
        self,
        inputs: Sequence[StreamInput],
        start: int,
        parents: Sequence[int] | None = None,
        added: Floats | None = None,
    ) -> Logits:
        """See ``LogitSource.forward`` and ``Request.added``."""

    @property
    def compiled(self) -> bool:
        """Whether there is ``follow``."""

    def follow(self, kernel: Callable[..., int], inputs: Sequence[StreamInput], start: int, *rest: Any) -> int:
        """See ``Line``; at most MAX_ROWS inputs -> how many decisions were made."""


class Begun(NamedTuple):
    """A line of inputs that have been through the first layers only, and what they are there."""

    start: int  # position of the first
    layers: int
    inputs: list[StreamInput]
    states: Floats  # [len(inputs), taps + 1, width]; see ``PackedTransformer.begin``

    def is_in(self, request: Request) -> bool:
        """Whether these are the first inputs of ``request``."""
        count = len(self.inputs)
        line = request.parents is None or list(request.parents[:count]) == list(range(-1, count - 1))
        return line and request.start == self.start and list(request.inputs[:count]) == self.inputs


class LmStream:
    """One stream of an ``LmBatch``: a slot and the phonemes' vectors. Made by ``LmBatch.open``."""

    def __init__(self, batch: LmBatch, slot: int, voice_weights: Sequence[float], speed: float) -> None:
        self.batch = batch
        self.features: Floats = np.zeros((0, 1, batch.lm.config.transformer.width), np.float32)
        self.slot = slot
        self.dropped = 0  # phonemes whose vectors are freed
        self.parked: SlotContent | None = None  # what its slot held, while it has none
        self.begun: Begun | None = None  # since its last whole pass
        lm = batch.lm
        with torch.inference_mode():
            weights = torch.tensor([list(voice_weights)], device=batch.device)
            self._speaker = lm.speaker(weights, torch.tensor([speed], device=batch.device))[0]  # [width]
        # [phonemes kept, width] of phoneme inputs
        self.entry: Floats = np.zeros((0, lm.config.transformer.width), np.float32)
        self.inside = self.entry  # the same for the codec inputs that follow

    def extend(self, windows: Sequence[Sequence[int]]) -> None:
        """Append phonemes, each as the symbol ids at OFFSETS around it."""
        if not windows:
            return
        with torch.inference_mode():
            table = torch.tensor(windows, device=self.batch.device)
            if table.shape[1] != len(OFFSETS):
                raise ValueError(f"a window has {table.shape[1]} symbols; it must have {len(OFFSETS)}")
            entry, inside = self.batch.lm.phoneme_vectors(table)
            self.entry = np.concatenate([self.entry, _floats(entry + self._speaker)])
            self.inside = np.concatenate([self.inside, _floats(inside + self._speaker)])

    def forget(self, before: int) -> None:
        """Free the vectors of phonemes with an index below ``before``."""
        if before > self.dropped:
            self.entry = self.entry[before - self.dropped :].copy()
            self.inside = self.inside[before - self.dropped :].copy()
            self.dropped = before

    def forward(
        self,
        inputs: Sequence[StreamInput],
        start: int,
        parents: Sequence[int] | None = None,
        added: Floats | None = None,
    ) -> Logits:
        """``LmBatch.forward`` for this stream alone."""
        return self.batch.forward([Request(self, inputs, start, parents, added)])[0]

    @property
    def compiled(self) -> bool:
        """See ``ConditionedSource``."""
        return self.batch.packed is not None

    def follow(self, kernel: Callable[..., int], inputs: Sequence[StreamInput], start: int, *rest: Any) -> int:
        """``LmBatch.follow`` for this stream alone."""
        return self.batch.follow([Line(self, inputs, start, kernel, rest)])[0]

    def told(self, states: Floats, later: int) -> Floats:
        """See ``SpeechLm.told``."""
        return self.batch.lm.told(states, later)

    def keep(self, start: int, path: Sequence[int]) -> None:
        """See ``LogitSource.keep``."""
        self.batch.cache.keep(self.slot, start, path)

    def park(self) -> None:
        """Give the slot back but remember what it held; only ``unpark`` and ``close`` may follow."""
        if self.parked is None:
            self.parked = self.batch.cache.copy_out(self.slot)
            self.batch.free(self)

    def unpark(self) -> None:
        """Go on in another slot. Raises ValueError when every slot is taken."""
        if self.parked is not None:
            self.slot = self.batch.take(self)
            self.batch.cache.copy_in(self.slot, self.parked)
            self.parked = None

    def close(self) -> None:
        """Give the slot back. Idempotent."""
        self.batch.free(self)


class Request(NamedTuple):
    """What a stream asks of a pass."""

    stream: LmStream
    inputs: Sequence[StreamInput]
    start: int  # position of the first
    parents: Sequence[int] | None = None  # see ``LogitSource.forward``
    added: Floats | None = None  # [len(inputs), width] to be added to the vectors of the inputs


class Line(NamedTuple):
    """A stream's wish to make several decisions one after another in one compiled call."""

    stream: LmStream
    inputs: Sequence[StreamInput]  # at most MAX_ROWS
    start: int  # position of the first
    kernel: Callable[..., int]  # (``Network``, entry, inside, dropped, items, slot, start, *rest) -> decisions made
    rest: tuple[Any, ...]


class LmBatch:
    """``lm`` with ``slots`` preallocated. Not thread-safe: one owner."""

    def __init__(
        self, lm: SpeechLm, slots: int, taps: Sequence[int] = (), make_graph: GraphMaker | None = None
    ) -> None:
        """``taps``: numbers of layers after which residuals are kept for ``LogitSource.features``.

        ``make_graph``: where no kernel of ours does them, passes are such graphs of static shape; on CUDA ``CudaGraph`` by default.
        """
        self.lm = lm
        self.taps = tuple(taps)
        self.packed = lm.packed()
        self._tokens, self._counts = _floats(lm.tokens.weight), _floats(lm.counts.weight)
        self.device = lm.tokens.weight.device
        self.dtype = torch.float32 if self.packed else lm.tokens.weight.dtype  # of vectors and sums
        self.cache: KvCache | PackedCache
        self._graphs: PassGraphs | None = None
        if make_graph is None and self.device.type == "cuda":
            make_graph = CudaGraph
        if self.packed:
            self.cache = self.packed.transformer.cache(slots)
            self._network = self.packed.transformer.network(self.cache, self.packed.heads, self._tokens, self._counts)
        elif make_graph is None:
            self.cache = KvCache(lm.config.transformer, slots, self.dtype, self.device)
        else:
            self.cache = KvCache(lm.config.transformer, slots + 1, self.dtype, self.device)
            self._graphs = PassGraphs(lm, self.cache, self.taps, make_graph)
        self._free = list(range(slots))
        self._taken: dict[int, LmStream] = {}

    def open(self, voice_weights: Sequence[float], speed: float) -> LmStream:
        """A new stream in the lowest free slot.

        Args:
            voice_weights: one per voice of the model: one-hot, or a mix.
            speed: 1 = the teacher's pace.

        Raises ValueError when every slot is taken.
        """
        stream = LmStream(self, -1, voice_weights, speed)
        stream.slot = self.take(stream)
        self.cache.rewind(stream.slot, 0)
        return stream

    def take(self, stream: LmStream) -> int:
        """The lowest free slot, now of ``stream``. Raises ValueError when every slot is taken."""
        if not self._free:
            raise ValueError(f"all {len(self._taken)} slots are taken")
        slot = min(self._free)
        self._free.remove(slot)
        self._taken[slot] = stream
        return slot

    def free(self, stream: LmStream) -> None:
        """See ``LmStream.close``."""
        if self._taken.get(stream.slot) is stream:
            del self._taken[stream.slot]
            self._free.append(stream.slot)

    def forward(self, requests: Sequence[Request]) -> list[Logits]:
        """Feed every request's inputs at positions ``start`` and after; everything its slot held from ``start`` on is forgotten.

        At most one request a stream, each with at least one input. Returns float32 logits [R, codebook_size + 2] of each. Raises
        ValueError when a ``start`` is no length the cache can be rewound to, or a tree has more than MAX_ROWS inputs.
        """
        for request in requests:
            self.cache.rewind(request.stream.slot, request.start)
            if request.parents is not None and len(request.inputs) > MAX_ROWS:
                raise ValueError(f"a tree of {len(request.inputs)} inputs; allowed: {MAX_ROWS}")
        if len(requests) == 1 and len(requests[0].inputs) <= MAX_ROWS:
            return self._pass(requests)
        in_order = sorted(requests, key=lambda request: request.stream.slot)
        if max(len(request.inputs) for request in requests) <= MAX_ROWS:
            made = dict(zip((request.stream.slot for request in in_order), self._pass(in_order), strict=True))
            return [made[request.stream.slot] for request in requests]
        parts: dict[int, list[Logits]] = {request.stream.slot: [] for request in requests}
        for at in range(0, max(len(request.inputs) for request in in_order), MAX_ROWS):
            now = [
                request._replace(
                    inputs=request.inputs[at : at + MAX_ROWS],
                    added=None if request.added is None else request.added[at : at + MAX_ROWS],
                )
                for request in in_order
                if len(request.inputs) > at
            ]
            for request, logits in zip(now, self._pass(now), strict=True):
                parts[request.stream.slot].append(logits)
        return [np.concatenate(parts[request.stream.slot]) for request in requests]

    def follow(self, lines: Sequence[Line]) -> list[int]:
        """Run every line's kernel, one after another: each input and each decision but the last is a position fed, as by ``forward``."""
        made = []
        for stream, inputs, start, kernel, rest in lines:
            self.cache.rewind(stream.slot, start)
            vectors = stream.entry, stream.inside, stream.dropped
            made.append(kernel(self._network, *vectors, np.array(inputs), stream.slot, start, *rest))
            self.cache.advance([0] * stream.slot + [len(inputs) + made[-1] - 1])
        return made

    def _pass(self, requests: Sequence[Request]) -> list[Logits]:
        counts = [0] * (requests[-1].stream.slot + 1)
        parents: list[int] | None = [] if any(request.parents is not None for request in requests) else None
        for request in requests:
            count = counts[request.stream.slot] = len(request.inputs)
            if parents is not None:
                parents.extend(request.parents if request.parents is not None else range(-1, count - 1))
        items = np.array([item for request in requests for item in request.inputs])
        due = items[:, 3]
        x = self._vectors(requests, items)
        layers, begun = self._take_begun(requests)
        if self.packed is not None:
            assert isinstance(self.cache, PackedCache)
            features = self.packed.transformer.finish(x, self.cache, counts, parents, self.taps, layers, begun)
            logits = self.packed.heads(features[:, -1], due)
        elif self._graphs is not None:
            features, logits = self._graphs(x, counts, parents, due)
        else:
            assert isinstance(self.cache, KvCache)
            features, logits = self._torch_pass(x, self.cache, counts, parents, due)
        parts, first = [], 0
        for request in requests:
            last = first + len(request.inputs)
            request.stream.features = features[first:last]
            parts.append(logits[first:last])
            first = last
        return parts

    def begin(self, requests: Sequence[Request], layers: int) -> Floats:
        """The first ``layers`` layers alone: residuals [N, width] of all inputs, in the order of ``requests``, which is that of slots.

        A request either begins a line at ``start`` or goes on with the one begun. A pass that has these inputs first, at ``start`` and
        behind each other, then has only the other layers to do for them. Raises ValueError for a line of more than MAX_ROWS inputs.
        """
        counts = [0] * (requests[-1].stream.slot + 1)
        for request in requests:
            counts[request.stream.slot] = len(request.inputs)
            self.cache.rewind(request.stream.slot, request.start)
        items = np.array([item for request in requests for item in request.inputs])
        x = self._vectors(requests, items)
        if self.packed is not None:
            assert isinstance(self.cache, PackedCache)
            states = self.packed.transformer.begin(x, self.cache, counts, layers, self.taps)
        elif self._graphs is not None:
            states = self._graphs(x, counts, None, items[:, 3], layers)[0]
        else:
            assert isinstance(self.cache, KvCache)
            inputs = torch.from_numpy(x).to(self.device, self.dtype)
            states = self.lm.transformer.step(inputs, self.cache, counts, layers=layers).float().cpu().numpy()
        first = 0
        for stream, new, start, _, _ in requests:
            made = states[first : first + len(new)]
            first += len(new)
            before = stream.begun
            if before is not None and start == before.start + len(before.inputs):
                line = [*before.inputs, *new]
                stream.begun = before._replace(inputs=line, states=np.concatenate([before.states, made]))
            else:
                stream.begun = Begun(start, layers, list(new), made)
            if len(stream.begun.inputs) > MAX_ROWS:
                raise ValueError(f"a line of {len(stream.begun.inputs)} inputs is begun; allowed: {MAX_ROWS}")
        return states[:, -1].copy()

    def _take_begun(self, requests: Sequence[Request]) -> tuple[int, list[Floats]]:
        """(number of layers, for each request the states of its first inputs after these); whatever was begun is forgotten.

        Torch's operators round rows that are cut otherwise in another way: there all rows go through all layers.
        """
        layers, states = 0, list[Floats]()
        if all(request.stream.begun is None for request in requests):
            return layers, states
        for request in requests:
            begun, request.stream.begun = request.stream.begun, None
            if begun is not None and begun.is_in(request) and self.packed is not None:
                layers = begun.layers
                states.append(begun.states)
            else:
                states.append(np.zeros((0, len(self.taps) + 1, self._tokens.shape[1]), np.float32))
        return layers, states

    @torch.inference_mode()
    def _torch_pass(
        self, x: Floats, cache: KvCache, counts: list[int], parents: list[int] | None, due: npt.NDArray[np.int64]
    ) -> tuple[Floats, Logits]:
        """(features, logits) by torch's operators, as on a GPU."""
        lm = self.lm
        inputs = torch.from_numpy(x).to(self.device, self.dtype)
        states = lm.transformer.step(inputs, cache, counts, parents, self.taps)
        logits = np.full((len(due), lm.config.codebook_size + 2), -np.inf, np.float32)
        for book in set(due):
            rows = np.flatnonzero(due == book)
            made = lm.heads[book](states[torch.from_numpy(rows).to(self.device), -1])
            logits[rows, : made.shape[1]] = made.float().cpu().numpy()
        return states.float().cpu().numpy(), logits

    def _vectors(self, requests: Sequence[Request], items: Ints) -> Floats:
        """Input vectors [N, width] of ``items`` [N, 4], the inputs of all requests."""
        made = np.empty((len(items), self._tokens.shape[1]), np.float32)
        first = 0
        for stream, inputs, _, _, added in requests:
            own = made[first : first + len(inputs)]
            new = items[first : first + len(inputs)]
            embed(new, stream.dropped, self._tokens, self._counts, stream.entry, stream.inside, own)
            if added is not None:
                own += added
            first += len(inputs)
        return made


def _floats(tensor: torch.Tensor) -> Floats:
    array: Floats = tensor.detach().float().cpu().numpy()
    return array
