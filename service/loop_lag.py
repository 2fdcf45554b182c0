"""How late the event loop is: a timer that fires at its time when the loop is free. Knows nothing of servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PERIOD_S = 0.02


async def watch_lag(observe: Callable[[float], object], period_s: float = PERIOD_S) -> None:
    """Report, every ``period_s`` until cancelled, by how many seconds the timer fired late."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + period_s
        await asyncio.sleep(period_s)
        observe(max(0.0, loop.time() - due))
