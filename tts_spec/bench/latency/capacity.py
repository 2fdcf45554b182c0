"""The largest number of sessions that holds. Knows numbers and a trial, not what is tried."""

from __future__ import annotations

from collections.abc import Awaitable, Callable


async def find_capacity(holds: Callable[[int], Awaitable[bool]], most: int) -> int:
    """The largest n up to ``most`` for which ``holds(n)``, by doubling and then halving the interval; 0 when 1 does not hold.

    No n is tried twice.
    """
    good, n = 0, 1
    while n <= most and await holds(n):
        good, n = n, min(2 * n, most) if n < most else most + 1
    bad = n
    while bad - good > 1:
        n = (good + bad) // 2
        if await holds(n):
            good = n
        else:
            bad = n
    return good
