"""Attention of the new rows of a pass over rings of keys and values, compiled by numba.

Rows of one stream go through the ring together, but each is summed by itself, over what it sees from the oldest on: bit by bit the same
whatever rows are beside it and wherever they lie. What a row does not see has weight 0, which changes no sum.
Rings are words: float32, or pairs of bfloat16 where the weights are. Knows arrays only. Source: Ainslie et al. 2023 (grouped queries),
Beltagy et al. 2020 (sliding window), Miao et al. 2024 (trees).
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from models.exponential import FAST, LEAST, LOG2_E, two_to_rest, two_to_whole
from models.products import BLOCK, Floats, Words, multiply, to_words
from models.vectors import FETCHED, MOST_WEIGHED, weigh_tile

Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]

FLOAT_COLUMNS, PAIR_COLUMNS = 16, 32  # values of a position are padded to a multiple
MOST_QUERIES = MOST_WEIGHED  # that go through a ring together
MOST_FETCHED = 512 * 1024  # bytes; more would drive one another out of the cache

_floats_1, _floats_2, _floats_3, _, _, _floats_6 = (
    weigh_tile(n, BLOCK, pairs=False) for n in range(1, MOST_WEIGHED + 1)
)
_pairs_1, _pairs_2, _pairs_3, _, _, _pairs_6 = (weigh_tile(n, BLOCK, pairs=True) for n in range(1, MOST_WEIGHED + 1))
_floats_narrow, _pairs_narrow = weigh_tile(1, FLOAT_COLUMNS, pairs=False), weigh_tile(1, PAIR_COLUMNS, pairs=True)


class Layout(NamedTuple):
    """Where the N rows of S streams read and write. The union of a stream: the ring places its rows see, committed ones from the oldest on,
    then those of the pass in their order, the N last."""

    firsts: Ints  # [S + 1] row at which each stream begins
    slots: Ints  # [S]
    unions: Places  # [S, longest]
    counts: Ints  # [S] places of each union
    bases: Ints  # [S] how many of them are committed ones
    skipped: Ints  # [N] committed places of the union that the row does not see any more
    committed: Ints  # [N] and how many it sees after those
    paths: Places  # [N, longest stream] rows of the pass that it sees, itself last
    depths: Ints  # [N] how many
    cos: Floats  # [N, hw / 2]
    sin: Floats


class Scratch(NamedTuple):
    """Room of ``attend`` for Q = ``MOST_QUERIES`` queries of one stream."""

    queries: Floats  # [Q, hw]
    words: Words  # [Q, steps]
    raw: Floats  # [Q, ring]
    shares: Floats  # [Q, longest union]
    powers: Places  # [longest union]
    as_float: Floats  # the same bytes
    summed: Floats  # [Q, padded hw]


@numba.njit(cache=True, nogil=True)
def lay_out(
    slots: Ints,
    starts: Ints,
    numbers: Ints,
    begun: Ints,
    parents: Ints,
    window: int,
    ring: int,
    frequencies: npt.NDArray[np.float64],
) -> Layout:
    """Stream i has ``numbers[i]`` rows side by side, behind ``starts[i]`` committed positions in ring ``slots[i]``; the first ``begun[i]``
    of them have been through these layers and are only seen.

    ``parents`` of all rows, also those: the row before in the same path, counted within the stream, -1 for the committed ones; empty =
    chains. A parent comes before its children. Row r of a stream is written to place start + r; its position is one past its parent's.
    """
    streams, total, most, half = len(slots), numbers.sum() - begun.sum(), numbers.max(), len(frequencies)
    firsts, counts = np.zeros(streams + 1, np.int64), np.empty(streams, np.int64)
    bases = np.empty(streams, np.int64)
    unions = np.empty((streams, window + most), np.int32)
    skipped, committed, depths = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
    paths = np.empty((total, most), np.int32)
    cos, sin = np.empty((total, half), np.float32), np.empty((total, half), np.float32)
    path = np.empty(most, np.int32)
    above = 0  # rows of the streams before, those begun too
    for i in range(streams):
        start, first = starts[i], firsts[i]
        firsts[i + 1] = first + numbers[i] - begun[i]
        oldest = max(0, start - window + 1)
        bases[i] = start - oldest
        counts[i] = bases[i] + numbers[i]
        place = oldest % ring
        for j in range(counts[i]):
            unions[i, j] = place
            place = 0 if place == ring - 1 else place + 1
        for r in range(begun[i], numbers[i]):
            row = first + r - begun[i]
            depth, at = 0, r
            while at >= 0:
                path[depth] = at
                depth += 1
                at = parents[above + at] if len(parents) else at - 1
            position = start + depth - 1
            seen = min(start, max(0, position - window + 1))
            skipped[row], committed[row] = seen - oldest, start - seen
            depths[row] = min(depth, window)
            for d in range(depths[row]):
                paths[row, d] = path[depths[row] - 1 - d]
            for k in range(half):
                angle = position * frequencies[k]
                cos[row, k], sin[row, k] = np.cos(angle), np.sin(angle)
        above += numbers[i]
    return Layout(firsts, slots, unions, counts, bases, skipped, committed, paths, depths, cos, sin)


@numba.njit(cache=True, nogil=True)
def make_scratch(layout: Layout, width: int, padded: int, ring: int, pairs: bool) -> Scratch:
    """Room for the longest union of ``layout``."""
    queries, longest = MOST_QUERIES, layout.unions.shape[1]
    powers = np.empty(longest, np.int32)
    return Scratch(
        np.empty((queries, width), np.float32), np.empty((queries, width // 2 if pairs else width), np.uint32),
        np.empty((queries, ring), np.float32), np.empty((queries, longest), np.float32),
        powers, powers.view(np.float32), np.empty((queries, padded), np.float32),
    )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def _rounded(bits: np.uint32) -> np.uint32:
    """float32 bits to those of the nearest bfloat16, ties to even."""
    return (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)


@numba.njit(fastmath=FAST, cache=True, nogil=True)
def rotate_and_store(joined: Floats, layout: Layout, pairs: bool, keys: Words, values: Words) -> None:
    """Rotate queries and keys of ``joined`` [N, heads + 2 kv_heads, hw] (q, k, v) in place; keys and values go into their rings.

    ``keys`` [slots, kv_heads, ring / 64, hw words, 64], ``values`` [slots, kv_heads, ring, words of the padded hw]; the words of pairs are
    those of ``vectors.product_tile`` and ``vectors.weigh_tile``.
    """
    kv_heads, width = keys.shape[1], joined.shape[2]
    half = width // 2
    turning = joined.shape[1] - kv_heads
    bits = joined.view(np.uint32)
    for i in range(len(layout.slots)):
        slot, first = layout.slots[i], layout.firsts[i]
        rows = layout.firsts[i + 1] - first
        for n in range(first, first + rows):
            for h in range(turning):
                for k in range(half):
                    one, two = joined[n, h, k], joined[n, h, half + k]
                    joined[n, h, k] = one * layout.cos[n, k] - two * layout.sin[n, k]
                    joined[n, h, half + k] = two * layout.cos[n, k] + one * layout.sin[n, k]
            place = layout.unions[i, layout.counts[i] - rows + n - first]
            block, column = place // BLOCK, place % BLOCK
            for g in range(kv_heads):
                key, value = bits[n, turning - kv_heads + g], bits[n, turning + g]
                if pairs:
                    for k in range(half):
                        upper = _rounded(key[2 * k + 1]) << np.uint32(16)
                        keys[slot, g, block, k, column] = _rounded(key[2 * k]) | upper
                    for k in range(values.shape[3]):
                        lower = k // 16 * PAIR_COLUMNS + k % 16
                        word = _rounded(value[lower]) if lower < width else np.uint32(0)
                        if lower + 16 < width:
                            word |= _rounded(value[lower + 16]) << np.uint32(16)
                        values[slot, g, place, k] = word
                else:
                    for k in range(width):
                        keys[slot, g, block, k, column] = key[k]
                        values[slot, g, place, k] = value[k]


@numba.njit(cache=True, nogil=True)
def _in_order(bits: np.int32) -> np.int32:
    """Bits of a float32 to a whole number in the order of the floats, and back; unlike floats these have a greatest that vectorises."""
    return bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))


@numba.njit(fastmath=FAST, cache=True, nogil=True, inline="never")
def softmax_weights(scores: Floats, powers: Places, as_float: Floats) -> np.float32:
    """exp(score - greatest) in place -> their sum. ``as_float`` is ``powers``, at least as long, seen as float32."""
    bits = scores.view(np.int32)
    greatest = np.int32(-(2**31))
    for j in range(len(bits)):
        greatest = max(greatest, _in_order(bits[j]))
    powers[0] = _in_order(greatest)
    most = as_float[0]
    for j in range(len(scores)):
        y = max((scores[j] - most) * LOG2_E, LEAST)
        whole = np.floor(y)
        powers[j] = two_to_whole(whole)
        scores[j] = two_to_rest(y - whole)
    total = np.float32(0)
    for j in range(len(scores)):
        weight = scores[j] * as_float[j]
        scores[j] = weight
        total += weight
    return total


@numba.njit(cache=True, nogil=True)
def attend(
    joined: Floats, layout: Layout, pairs: bool, keys: Words, values: Words, scratch: Scratch, out: Floats, fetched: int
) -> None:
    """Attention of every query of ``joined`` over what its row sees: ``out`` [N, heads x hw]. See ``rotate_and_store``.

    Meanwhile up to ``MOST_FETCHED`` bytes at address ``fetched``, the weights that come next, are brought into the cache."""
    kv_heads, blocks, steps = keys.shape[1], keys.shape[2], keys.shape[3]
    width, line = joined.shape[2], values.shape[3]
    groups = (joined.shape[1] - 2 * kv_heads) // kv_heads
    firsts, slots, unions, counts, bases, skipped, committed, paths, depths, _, _ = layout
    queries, words, raw, shares, powers, as_float, summed = scratch
    totals = queries[:, 0]  # a query is not needed any more when its total is made
    scale = np.float32(1.0) / np.sqrt(np.float32(width))
    at_most, fetch = fetched + MOST_FETCHED, fetched
    for i in range(len(slots)):
        slot, first, count, base = slots[i], firsts[i], counts[i], bases[i]
        number = (firsts[i + 1] - first) * groups
        # The ring fills from its first block on.
        used = blocks if unions[i, count - 1] < count - 1 else unions[i, count - 1] // BLOCK + 1
        index = unions.ctypes.data + i * unions.shape[1] * 4
        for g in range(kv_heads):
            ring = keys.ctypes.data + (slot * kv_heads + g) * blocks * steps * BLOCK * 4
            table = values.ctypes.data + (slot * kv_heads + g) * blocks * BLOCK * line * 4
            for begin in range(0, number, MOST_QUERIES):
                several = min(MOST_QUERIES, number - begin)
                for q in range(several):
                    row, head = first + (begin + q) // groups, g * groups + (begin + q) % groups
                    for k in range(width):
                        queries[q, k] = joined[row, head, k]
                to_words(queries[:several], width, pairs, words)
                x, made, made_line = words.ctypes.data, raw.ctypes.data, raw.shape[1] * 4
                multiply(x, steps * 4, several, ring, used, steps, pairs, made, made_line, fetch)
                fetch += used * steps * FETCHED
                for q in range(several):
                    row = first + (begin + q) // groups
                    totals[q] = _share(
                        raw[q], shares[q, :count], unions[i], base, skipped[row], committed[row], paths[row],
                        depths[row], scale, powers, as_float,
                    )  # fmt: skip
                fetch = _weigh(
                    shares.ctypes.data, shares.shape[1] * 4, several, index, count, table, line * 4, pairs,
                    summed.ctypes.data, summed.shape[1], fetch,
                )  # fmt: skip
                if fetch > at_most:
                    fetch = fetched
                for q in range(several):
                    row, share = first + (begin + q) // groups, np.float32(1) / totals[q]
                    at = (g * groups + (begin + q) % groups) * width
                    for k in range(width):
                        out[row, at + k] = summed[q, k] * share


@numba.njit(cache=True, nogil=True)
def _share(
    raw: Floats, shares: Floats, union: Places, base: int, skipped: int, committed: int, path: Places, depth: int,
    scale: np.float32, powers: Places, as_float: Floats,
) -> np.float32:  # fmt: skip
    """Raw products of a query, by ring place -> ``shares``: weights by place of the union, whose first ``base`` places are committed, not
    yet divided by their sum, which is returned."""
    shares[:skipped] = 0
    shares[base:] = 0
    own = shares[skipped : base + depth]  # what the row sees, side by side
    start = union[skipped]
    straight = min(committed, len(raw) - start)
    before, after = raw[start:], raw[: committed - straight]
    for j in range(straight):
        own[j] = before[j] * scale
    behind = own[straight:]
    for j in range(len(after)):
        behind[j] = after[j] * scale
    for d in range(depth):
        own[committed + d] = raw[union[base + path[d]]] * scale
    total = softmax_weights(own, powers, as_float)
    for d in range(depth - 1, -1, -1):  # rows of other paths lie between those of its own
        weight = own[committed + d]
        own[committed + d] = 0
        shares[base + path[d]] = weight
    return total


@numba.njit(cache=True, nogil=True)
def _weigh(
    shares: int, shares_line: int, queries: int, index: int, count: int, table: int, line: int, pairs: bool, out: int,
    columns: int, fetch: int,
) -> int:  # fmt: skip
    """Rows of ``columns`` float32 at ``out`` = weights at ``shares`` times the lines of ``table`` that ``index`` names. Addresses and
    lines in bytes. Meanwhile the cache gets what lies at ``fetch``; returns where that ends."""
    one, narrow = columns * 4, PAIR_COLUMNS if pairs else FLOAT_COLUMNS
    column = 0
    while column < columns:
        whole = columns - column >= BLOCK
        t = table + (column * 2 if pairs else column * 4)
        q = 0
        while q < queries:
            left = queries - q
            s, o = shares + q * shares_line, out + q * one + column * 4
            if not whole:
                if pairs:
                    _pairs_narrow(s, shares_line, index, count, t, line, o, one, fetch)
                else:
                    _floats_narrow(s, shares_line, index, count, t, line, o, one, fetch)
                q += 1
            elif left >= 6:
                if pairs:
                    _pairs_6(s, shares_line, index, count, t, line, o, one, fetch)
                else:
                    _floats_6(s, shares_line, index, count, t, line, o, one, fetch)
                q += 6
            elif left >= 3:
                if pairs:
                    _pairs_3(s, shares_line, index, count, t, line, o, one, fetch)
                else:
                    _floats_3(s, shares_line, index, count, t, line, o, one, fetch)
                q += 3
            elif left == 2:
                if pairs:
                    _pairs_2(s, shares_line, index, count, t, line, o, one, fetch)
                else:
                    _floats_2(s, shares_line, index, count, t, line, o, one, fetch)
                q += 2
            else:
                if pairs:
                    _pairs_1(s, shares_line, index, count, t, line, o, one, fetch)
                else:
                    _floats_1(s, shares_line, index, count, t, line, o, one, fetch)
                q += 1
            fetch += count * FETCHED
        column += BLOCK if whole else narrow
    return fetch
