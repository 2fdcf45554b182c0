"""An event loop whose time passes at once: what asyncio does in a minute, tested exactly and without waiting."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
SECOND = 1_000_000_000


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


def finish(loop: VirtualTime, coroutine: Coroutine[Any, Any, T]) -> T:
    return loop.run_until_complete(coroutine)
