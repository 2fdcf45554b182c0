"""Many streams' steps at once: each runs as if alone, and the passes they ask for are done together.

A step is ordinary code that calls ``forward`` of its models and ``decode_streams`` of its codec. Here each step runs in a greenlet; such a
call hands its request to the hub, which waits until every step has asked for something, does one pass for all that want the same network
and gives each its share. Drafters go first, so that their users meet the others at the target. What a stream gets does not depend on who
else is there: the networks compute each row by itself. Knows requests; knows nothing of what the steps do.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import greenlet

from models.bundle import Bundle
from models.codec.codec import Codec, Codes, Pcm
from models.exit_stream import ExitBatch
from models.lm_stream import Line, LmBatch, Logits, Request

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What a step returned, or the exception that ended it."""

    value: T | None = None
    error: Exception | None = None


class PassRecord(NamedTuple):
    """One pass: of which network, over how many rows (LM) or frames (codec), in how many seconds."""

    network: str
    streams: int
    rows: int
    seconds: float


Record = Callable[[PassRecord], None]


def ignore(record: PassRecord) -> None:
    """Nobody wants to know."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Wish:
    """What a step waits for: logits of its request, or the PCM of codes."""

    place: SharedBatch | SharedExit | SharedCodec
    request: Request | Line | tuple[Codes, Any]


class SharedBatch(LmBatch):
    """An ``LmBatch`` whose streams may ask from inside ``together``; elsewhere it does a pass at once."""

    name = "target"
    record: Record = staticmethod(ignore)  # is told of passes outside

    def forward(self, requests: Sequence[Request]) -> list[Logits]:
        """See ``LmBatch.forward``."""
        if not _inside():
            return _timed(self, requests, self.record)
        return [_ask(_Wish(self, request)) for request in requests]

    def follow(self, lines: Sequence[Line]) -> list[int]:
        """See ``LmBatch.follow``."""
        if not _inside():
            return _timed(self, lines, self.record)
        return [_ask(_Wish(self, line)) for line in lines]

    def serve(self, requests: Sequence[Request | Line]) -> list[Any]:
        """One pass for all; lines one after another."""
        passes = [request for request in requests if isinstance(request, Request)]
        logits = iter(super().forward(passes) if passes else ())
        lines = iter(super().follow([request for request in requests if isinstance(request, Line)]))
        return [next(logits if isinstance(request, Request) else lines) for request in requests]


class SharedExit(ExitBatch):
    """An ``ExitBatch`` of the target, likewise."""

    name = "early-exit"
    record: Record = staticmethod(ignore)  # is told of passes outside

    def forward(self, requests: Sequence[Request]) -> list[Logits]:
        """See ``ExitBatch.forward``."""
        if not _inside():
            return _timed(self, requests, self.record)
        return [_ask(_Wish(self, request)) for request in requests]

    def serve(self, requests: Sequence[Request]) -> list[Logits]:
        """One pass for all."""
        return super().forward(requests)


class SharedCodec:
    """A codec whose ``decode_streams`` of single streams may be asked from inside ``together``."""

    name = "codec"

    def __init__(self, codec: Codec[Any]) -> None:
        self._codec = codec
        self.sample_rate = codec.sample_rate
        self.initial_state = codec.initial_state

    def decode_streams(self, codes: Sequence[Codes], states: Sequence[Any]) -> list[Pcm]:
        """See ``Codec.decode_streams``."""
        if not _inside():
            return self._codec.decode_streams(codes, states)
        return [_ask(_Wish(self, request)) for request in zip(codes, states, strict=True)]

    def serve(self, requests: Sequence[tuple[Codes, Any]]) -> list[Pcm]:
        """One pass for all."""
        codes, states = zip(*requests, strict=True)
        return self._codec.decode_streams(codes, states)


class SharedNetworks:
    """The networks of a bundle with room for ``slots`` streams each. One owner: one thread."""

    def __init__(self, bundle: Bundle, slots: int, record: Record = ignore) -> None:
        """``record`` is told of language models' passes that are done outside of ``together``."""
        self.target = SharedBatch(bundle.target, slots, bundle.manifest.taps)
        self.drafters = {name: SharedBatch(lm, slots) for name, lm in bundle.drafters.items()}
        for name, batch in self.drafters.items():
            batch.name = name
        self.early_exit = SharedExit(self.target, bundle.early_exit) if bundle.early_exit is not None else None
        self.codec = SharedCodec(bundle.codec)
        for place in (self.target, *self.drafters.values(), self.early_exit):
            if place is not None:
                place.record = record

    @property
    def nbytes(self) -> int:
        """Bytes of all KV caches."""
        return sum(batch.cache.nbytes for batch in (self.target, *self.drafters.values()))


def _timed(place: Any, requests: Sequence[Any], record: Record) -> list[Any]:
    """One pass for all ``requests``, and what it took."""
    started = time.perf_counter()
    answers: list[Any] = place.serve(requests)
    rows = sum(_rows(request, answer) for request, answer in zip(requests, answers, strict=True))
    record(PassRecord(place.name, len(requests), rows, time.perf_counter() - started))
    return answers


def together(steps: Sequence[Callable[[], T]], record: Record = ignore) -> list[Outcome[T]]:
    """Run all ``steps`` to their ends; one that raises ends alone. ``record`` is told of every pass."""
    outcomes: list[Outcome[T]] = [Outcome()] * len(steps)
    waiting: dict[int, _Wish] = {}

    def resume(index: int, answer: Any = None) -> None:
        try:
            value = runs[index].switch(answer) if runs[index] else runs[index].switch()
        except Exception as error:
            outcomes[index] = Outcome(error=error)
            return
        if runs[index].dead:
            outcomes[index] = Outcome(value=value)
        else:
            waiting[index] = value

    runs = [greenlet.greenlet(step) for step in steps]
    try:
        for index in range(len(runs)):
            resume(index)
        while waiting:
            indices = _next(waiting)
            wishes = [waiting.pop(index) for index in indices]
            place = wishes[0].place
            answers = _timed(place, [wish.request for wish in wishes], record)
            for index, answer in zip(indices, answers, strict=True):
                resume(index, answer)
    finally:
        for run in runs:
            if run and not run.dead:  # a pass failed: end the steps that wait for it, their ``finally`` included
                run.throw(greenlet.GreenletExit)
    return outcomes


def _next(waiting: dict[int, _Wish]) -> list[int]:
    """The wishes of the next pass, all for one network: drafters before the target before the codec."""

    def order(wish: _Wish) -> tuple[bool, bool, str]:
        return wish.place.name == SharedCodec.name, wish.place.name == SharedBatch.name, wish.place.name

    first = min(order(wish) for wish in waiting.values())
    return [index for index, wish in waiting.items() if order(wish) == first]


def _rows(request: Request | Line | tuple[Codes, Any], answer: Any) -> int:
    if isinstance(request, Line):
        return len(request.inputs) + int(answer) - 1
    return len(request.inputs) if isinstance(request, Request) else request[0].shape[-1]


def _inside() -> bool:
    return greenlet.getcurrent().parent is not None


def _ask(wish: _Wish) -> Any:
    hub = greenlet.getcurrent().parent
    assert hub is not None
    return hub.switch(wish)
