"""What the engine has learnt while running: the cost of a pass, the share of drafts accepted. Pure arithmetic; knows no clock."""

from __future__ import annotations

from collections.abc import Sequence

OUTLIER = 3.0
STIFF = 100.0  # how firmly the slope is held to the prior's, in passes that are a row away from the mean


class LinearCost:
    """Seconds of a pass as ``base + per_row x rows``, least squares over the passes seen, older ones forgotten bit by bit.

    Starts from a prior that a few observations outweigh. Where nearly all passes have as many rows, what a row costs is not seen: the
    slope then keeps near the prior's, as a share of the whole (ridge regression). Neither part is ever estimated below zero.
    """

    def __init__(self, base_s: float, per_row_s: float, memory: int = 200) -> None:
        self._keep = 1 - 1 / memory
        self._prior = base_s, per_row_s
        # Sums of 1, rows, rows^2, seconds, rows x seconds; the prior counts as two passes, of 1 and of 16 rows.
        self._sums = [0.0] * 5
        for rows in (1, 16):
            self._add(rows, base_s + per_row_s * rows)

    def observe(self, rows: float, seconds: float) -> None:
        """A pass of ``rows`` took ``seconds``. What is far beyond the expected (something was compiled, the machine slept) counts as
        ``OUTLIER`` times that; if it is the rule, that is soon learnt."""
        seconds = min(seconds, OUTLIER * self.of(rows))
        self._sums = [total * self._keep for total in self._sums]
        self._add(rows, seconds)

    def of(self, rows: float) -> float:
        """Expected seconds of a pass of ``rows``."""
        n, r, rr, s, rs = self._sums
        spread, mean = rr - r * r / n, r / n
        base_s, per_row_s = self._prior
        whole = base_s + per_row_s * mean
        usual = per_row_s / whole * s / n if whole > 0 else 0.0
        slope = max(0.0, (rs - r * s / n + STIFF * usual) / (spread + STIFF))
        if slope * mean > s / n:  # the base would be negative
            slope = s / r
        return s / n + slope * (rows - mean)

    def _add(self, rows: float, seconds: float) -> None:
        added = (1.0, rows, rows * rows, seconds, rows * seconds)
        self._sums = [total + new for total, new in zip(self._sums, added, strict=True)]


class Acceptance:
    """How many drafts a round has and how many are right, by their place in the round, running. A drafter may end its line early."""

    def __init__(self, prior: float = 0.5, places: int = 16, memory: int = 400) -> None:
        self._keep = 1 - 1 / memory
        # Given that those before were: drafted and right; and drafted. The prior counts as four drafts a place.
        self._right = [(4.0 * prior, 4.0)] * places
        self._drafted = [(4.0, 4.0)] * places

    def observe(self, drafted: int, accepted: int, most: int) -> None:
        """A round that might have drafted ``most`` compared ``drafted`` drafts, of which the first ``accepted`` were right."""
        for place in range(min(most, accepted + 1)):
            self._right[place] = self._moved(self._right[place], place < accepted)
        for place in range(min(most, drafted + 1)):
            self._drafted[place] = self._moved(self._drafted[place], place < drafted)

    def tokens(self, gamma: int) -> float:
        """Expected tokens of a round with at most ``gamma`` drafts, the free one counted (tau)."""
        return 1.0 + _reached(self._right[:gamma])

    def drafts(self, gamma: int) -> float:
        """Expected drafts of a round with at most ``gamma``."""
        return _reached(self._drafted[:gamma])

    def _moved(self, share: tuple[float, float], hit: bool) -> tuple[float, float]:
        hits, tries = share
        return hits * self._keep + hit, tries * self._keep + 1


def _reached(shares: Sequence[tuple[float, float]]) -> float:
    """Expected number of places passed, one after another, each with its share."""
    total, alive = 0.0, 1.0
    for hits, tries in shares:
        alive *= hits / tries
        total += alive
    return total


class Ratio:
    """Running ratio of two sums, older parts forgotten bit by bit."""

    def __init__(self, prior: float, weight: float, memory: int = 500) -> None:
        """``prior`` counts as ``weight`` of the lower sum; ``memory`` observations are remembered."""
        self._keep = 1 - 1 / memory
        self._upper, self._lower = prior * weight, weight

    def observe(self, upper: float, lower: float) -> None:
        """Both sums grow."""
        self._upper = self._upper * self._keep + upper
        self._lower = self._lower * self._keep + lower

    @property
    def value(self) -> float:
        return self._upper / self._lower
