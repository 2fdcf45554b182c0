"""Fixtures of the latency tests: asyncio, the sine engine, and an event loop whose time passes at once."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from tests.service.fake_engine import FakeEngine
from tts_spec.bench.latency.playback import SECOND

T = TypeVar("T")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.close()


class VirtualTime(asyncio.SelectorEventLoop):
    """Where the loop would sleep, its clock jumps instead. For coroutines that do nothing but sleep."""

    def __init__(self) -> None:
        super().__init__(selectors.SelectSelector())
        self.now = 0.0
        select = self._selector.select  # type: ignore[attr-defined]

        def jump(timeout: float | None = None) -> Any:
            assert timeout is not None, "nothing will ever happen"
            self.now += timeout
            return select(0)

        self._selector.select = jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self.now

    def ns(self) -> int:
        return round(self.now * SECOND)


@pytest.fixture
def virtual() -> Iterator[VirtualTime]:
    loop = VirtualTime()
    yield loop
    loop.close()


def finish(loop: VirtualTime, coroutine: Coroutine[Any, Any, T]) -> T:
    return loop.run_until_complete(coroutine)
