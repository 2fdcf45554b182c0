"""What a list of measurements comes to. Knows numbers only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Nearest rank: the smallest value that at least ``percent`` of all values do not pass. ``ordered`` rises and is not empty."""
    return ordered[max(0, math.ceil(percent * len(ordered) / 100) - 1)]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Percentiles by nearest rank, in the unit of the values; None without values. ``iqr`` is p75 - p25."""

    n: int
    min: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None
    iqr: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Distribution:
        if not values:
            return cls(0)
        ordered = sorted(values)
        p25, p50, p75, p95, p99 = (percentile(ordered, percent) for percent in (25, 50, 75, 95, 99))
        return cls(len(ordered), ordered[0], p50, p95, p99, ordered[-1], p75 - p25)

    def as_dict(self, digits: int = 2) -> dict[str, float | int | None]:
        return {name: round(value, digits) if value is not None else None for name, value in asdict(self).items()}


def histogram_percentile(buckets: Sequence[tuple[float, float]], percent: float) -> float | None:
    """The same from a histogram of (upper bound, values up to it), rising; linear within a bucket, None when it is empty.

    Beyond the last finite bound nothing is known: that bound is given.
    """
    total = buckets[-1][1] if buckets else 0
    if not total:
        return None
    rank = percent * total / 100
    low, below = 0.0, 0.0
    for bound, count in buckets:
        if count >= rank and count > below:
            return low if math.isinf(bound) else low + (bound - low) * (rank - below) / (count - below)
        low, below = bound, count
    return low
