"""Lengths of the streams in a KV cache: each slot a ring of positions, rollback by setting a length.

A ring is at least ``window + MAX_ROWS`` long: a pass may write up to MAX_ROWS new positions and every one still sees its whole window.
Whatever a rejected draft left behind lies beyond the length or outside every window, and is written over before it can be seen.
Knows counts; knows neither keys nor values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MAX_ROWS = 16  # new positions of one stream in one pass


@dataclass(frozen=True, slots=True)
class SlotContent:
    """What a slot held, for another slot of the same cache."""

    stores: tuple[Any, ...]  # of ``Slots.stores``, its part
    length: int
    written: int


class Slots(ABC):
    """``lengths[s]`` positions of slot s are committed; ``rewind`` rolls back."""

    def __init__(self, slots: int, capacity: int) -> None:
        self.capacity = capacity
        self.lengths = [0] * slots
        self._written = [0] * slots  # positions below which anything was ever written, since position 0

    @property
    @abstractmethod
    def stores(self) -> tuple[Any, ...]:
        """The arrays or tensors that hold keys and values, [layers, slots, ...] each."""

    def copy_out(self, slot: int) -> SlotContent:
        """A copy of all that ``slot`` holds; as many bytes as a slot has."""
        stores = tuple(store[:, slot] * 1 for store in self.stores)
        return SlotContent(stores, self.lengths[slot], self._written[slot])

    def copy_in(self, slot: int, content: SlotContent) -> None:
        """Make ``slot`` hold ``content``."""
        for store, kept in zip(self.stores, content.stores, strict=True):
            store[:, slot] = kept
        self.lengths[slot], self._written[slot] = content.length, content.written

    @abstractmethod
    def move(self, slot: int, to: int, source: int) -> None:
        """Copy what ring place ``source`` of ``slot`` holds to place ``to``."""

    def keep(self, slot: int, start: int, path: Sequence[int]) -> None:
        """Of a tree written at ``start`` keep the rows ``path``, root first, as positions ``start`` and after; forget the others."""
        for position, row in enumerate(path):
            if row != position:
                self.move(slot, (start + position) % self.capacity, (start + row) % self.capacity)
        self.rewind(slot, start + len(path))

    def rewind(self, slot: int, length: int) -> None:
        """Set the length of ``slot``, at most to what it is.

        Raises ValueError when ``length`` lies beyond what is held, or so far back that the ring has written over what must be seen.
        """
        if not 0 <= length <= self.lengths[slot]:
            raise ValueError(f"length is {length}; only {self.lengths[slot]} positions are cached")
        written = self._written[slot] if length else 0
        if written > self.capacity and written - length > MAX_ROWS:
            raise ValueError(f"length is {length}; {written} positions were written, at most {MAX_ROWS} can be undone")
        self.lengths[slot], self._written[slot] = length, written

    def advance(self, counts: Sequence[int]) -> None:
        """Count the new positions of a pass as written."""
        for slot, count in enumerate(counts):
            self.lengths[slot] += count
            self._written[slot] = max(self._written[slot], self.lengths[slot])


def check_counts(counts: Sequence[int]) -> None:
    """Raises ValueError unless ``counts`` are rows one pass can take."""
    if not 1 <= max(counts, default=0) <= MAX_ROWS or min(counts) < 0:
        raise ValueError(f"counts is {list(counts)}; allowed: 0 to {MAX_ROWS} for each slot, one of them at least 1")


def check_parents(counts: Sequence[int], parents: Sequence[int]) -> None:
    """Raises ValueError unless every row's parent is an earlier row of its stream, or -1."""
    rows = [row for count in counts for row in range(count)]
    if len(parents) != len(rows) or any(not -1 <= parent < row for parent, row in zip(parents, rows, strict=True)):
        raise ValueError(f"parents is {list(parents)}; allowed: one a row, each an earlier row of its stream or -1")


def chain(counts: Sequence[int]) -> list[int]:
    """Parents of rows that follow each other."""
    return [row - 1 for count in counts for row in range(count)]
