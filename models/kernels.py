"""A decoding pass on the CPU, compiled by numba: the layers of a transformer for a few new positions of some streams, in one call.

In torch such a pass is some hundred operators of a few microseconds each; here it takes about as long as its weights take to be read.
Every row is computed by itself, in the same order of sums whatever rows are beside it and wherever in the ring its keys lie: a pass of 8
rows equals 8 passes of one, bit by bit, and a node of a tree equals the same position of a chain. Compiled at first use, kept on disk by
numba. Knows arrays only.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from models.products import BLOCK, Floats, Words, multiply, product
from models.vectors import MOST_WEIGHED, weigh_tile

Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]

# Sums may be split into vector lanes: the same way every time, for the split depends on a row's own lengths alone.
_FAST = {"reassoc", "contract", "nsz", "arcp", "nnan"}
_LOG2_E = np.float32(1.4426950408889634)

_weigh_1, _weigh_2, _weigh_3 = (weigh_tile(rows, BLOCK) for rows in range(1, MOST_WEIGHED + 1))
_weigh_narrow = weigh_tile(1, 16)


@numba.njit(fastmath=_FAST, cache=True, nogil=True)
def add_and_norm(x: Floats, added: Floats, scale: Floats, eps: np.float32, out: Floats) -> None:
    """``x`` [N, width] += ``added``; ``out`` = RMSNorm of ``x`` times ``scale`` [width] (Zhang and Sennrich 2019)."""
    width = x.shape[1]
    for n in range(x.shape[0]):
        total = np.float32(0)
        for i in range(width):
            value = x[n, i] + added[n, i]
            x[n, i] = value
            total += value * value
        factor = np.float32(1) / np.sqrt(total / np.float32(width) + eps)
        for i in range(width):
            out[n, i] = x[n, i] * factor * scale[i]


@numba.njit(fastmath=_FAST, cache=True, nogil=True)
def _power(rest: np.float32) -> np.float32:
    """2^rest for 0 <= rest < 1; vectorisable, unlike a call of exp. The error is that of rounding."""
    value = np.float32(1.8775767e-3) * rest + np.float32(8.9893397e-3)
    value = value * rest + np.float32(5.5826318e-2)
    value = value * rest + np.float32(2.4015361e-1)
    value = value * rest + np.float32(6.9315308e-1)
    return value * rest + np.float32(9.9999994e-1)


@numba.njit(fastmath=_FAST, cache=True, nogil=True)
def norm(x: Floats, scale: Floats, eps: np.float32, out: Floats) -> None:
    """``out`` = RMSNorm of ``x`` [N, width] times ``scale`` [width]."""
    add_and_norm(x.copy(), np.zeros_like(x), scale, eps, out)


@numba.njit(fastmath=_FAST, cache=True, nogil=True)
def swiglu(gate_up: Floats, out: Floats) -> None:
    """``gate_up`` [N, at least 2 hidden] -> ``out`` [N, hidden]: SiLU of the first half times the second (Shazeer 2020)."""
    hidden = out.shape[1]
    powers = np.empty(hidden, np.int32)
    as_float = powers.view(np.float32)
    for n in range(out.shape[0]):
        for i in range(hidden):
            gate = gate_up[n, i]
            y = min(max(-gate * _LOG2_E, np.float32(-126.0)), np.float32(126.0))
            whole = np.floor(y)
            powers[i] = (np.int32(whole) + np.int32(127)) << np.int32(23)
            out[n, i] = _power(y - whole)
        for i in range(hidden):
            gate = gate_up[n, i]
            out[n, i] = gate / (np.float32(1) + out[n, i] * as_float[i]) * gate_up[n, hidden + i]


@numba.njit(fastmath=_FAST, cache=True, nogil=True)
def _norm_head(head: Floats, scale: Floats, eps: np.float32) -> None:
    total = np.float32(0)
    for i in range(len(head)):
        total += head[i] * head[i]
    factor = np.float32(1) / np.sqrt(total / np.float32(len(head)) + eps)
    for i in range(len(head)):
        head[i] *= factor * scale[i]


@numba.njit(fastmath=_FAST, cache=True, nogil=True)
def rotate_and_store(
    joined: Floats, cos: Floats, sin: Floats, slots: Ints, places: Places, keys: Floats, values: Floats
) -> None:
    """Rotate queries and keys of ``joined`` [N, heads + 2 kv_heads, hw] (q, k, v) in place; keys and values go into their rings.

    ``cos``/``sin`` [N, hw / 2]; row n belongs to ring ``slots[n]`` at ``places[n]``; ``keys`` [slots, kv_heads, ring / 64, hw, 64],
    ``values`` [slots, kv_heads, ring, at least hw].
    """
    kv_heads, width = keys.shape[1], keys.shape[3]
    half = width // 2
    turning = joined.shape[1] - kv_heads
    for n in range(joined.shape[0]):
        for h in range(turning):
            for i in range(half):
                first, second = joined[n, h, i], joined[n, h, half + i]
                joined[n, h, i] = first * cos[n, i] - second * sin[n, i]
                joined[n, h, half + i] = second * cos[n, i] + first * sin[n, i]
        slot, place = slots[n], places[n]
        for g in range(kv_heads):
            for i in range(width):
                keys[slot, g, place // BLOCK, i, place % BLOCK] = joined[n, turning - kv_heads + g, i]
                values[slot, g, place, i] = joined[n, turning + g, i]


@numba.njit(fastmath=_FAST, cache=True, nogil=True, inline="never")
def _weights(scores: Floats, count: int, powers: npt.NDArray[np.int32], as_float: Floats) -> np.float32:
    """exp(score - greatest) in place for the first ``count`` -> their sum. ``as_float`` is ``powers`` seen as float32.

    2^y as 2^floor(y), made of bits, times a polynomial of the rest; vectorisable. The error is that of rounding y.
    """
    greatest = np.float32(-1e30)
    for j in range(count):
        greatest = max(greatest, scores[j])
    for j in range(count):
        y = max((scores[j] - greatest) * _LOG2_E, np.float32(-126.0))
        whole = np.floor(y)
        rest = y - whole
        powers[j] = (np.int32(whole) + np.int32(127)) << np.int32(23)
        scores[j] = _power(rest)
    total = np.float32(0)
    for j in range(count):
        weight = scores[j] * as_float[j]
        scores[j] = weight
        total += weight
    return total


@numba.njit(cache=True, nogil=True)
def attend(
    joined: Floats,
    slots: Ints,
    visible: Places,
    counts: Ints,
    keys: Floats,
    values: Floats,
    raw: Floats,
    scores: Floats,
    powers: npt.NDArray[np.int32],
    as_float: Floats,
    out: Floats,
) -> None:
    """Attention of every query of ``joined`` over the ring places ``visible[n, :counts[n]]``, oldest first: ``out`` [N, heads x hw].

    Scratch: ``raw`` [groups, ring], ``scores`` [groups, longest], ``powers`` and ``as_float`` (the same bytes) [longest].
    """
    kv_heads, blocks, width = keys.shape[1], keys.shape[2], keys.shape[3]
    padded = values.shape[3]
    groups = (joined.shape[1] - 2 * kv_heads) // kv_heads
    scale = np.float32(1.0) / np.sqrt(np.float32(width))
    row_bytes = joined.shape[1] * joined.shape[2] * 4
    summed = np.empty((groups, padded), np.float32)
    for n in range(joined.shape[0]):
        count, slot = counts[n], slots[n]
        for g in range(kv_heads):
            query = joined.ctypes.data + n * row_bytes + g * groups * width * 4
            ring = keys.ctypes.data + (slot * kv_heads + g) * blocks * width * 256
            multiply(query, width * 4, groups, ring, blocks, width, False, raw.ctypes.data, raw.shape[1] * 4)
            for h in range(groups):
                for j in range(count):
                    scores[h, j] = raw[h, visible[n, j]] * scale
                share = np.float32(1) / _weights(scores[h], count, powers, as_float)
                for j in range(count):
                    scores[h, j] *= share
            table = values.ctypes.data + (slot * kv_heads + g) * blocks * BLOCK * padded * 4
            index = visible.ctypes.data + n * visible.shape[1] * 4
            wide, one, two = scores.shape[1] * 4, padded * 4, summed.ctypes.data
            column = 0
            while column < padded:
                at, to = table + column * 4, two + column * 4
                if padded - column >= BLOCK:
                    h = 0
                    while h < groups:
                        s, o = scores.ctypes.data + h * wide, to + h * one
                        if groups - h >= 3:
                            _weigh_3(s, wide, index, count, at, one, o, one)
                            h += 3
                        elif groups - h == 2:
                            _weigh_2(s, wide, index, count, at, one, o, one)
                            h += 2
                        else:
                            _weigh_1(s, wide, index, count, at, one, o, one)
                            h += 1
                    column += BLOCK
                else:
                    for h in range(groups):
                        _weigh_narrow(scores.ctypes.data + h * wide, wide, index, count, at, one, to + h * one, one)
                    column += 16
            for h in range(groups):
                for i in range(width):
                    out[n, (g * groups + h) * width + i] = summed[h, i]


@numba.njit(cache=True, nogil=True)
def lay_out(
    slots: Ints, starts: Ints, numbers: Ints, parents: Ints, window: int, ring: int, base: float,
    row_slots: Ints, places: Places, visible: Places, counts: Ints, cos: Floats, sin: Floats,
) -> None:  # fmt: skip
    """Where each of the N rows of a pass reads and writes.

    Stream i has ``numbers[i]`` rows side by side, behind ``starts[i]`` committed positions in ring ``slots[i]``. ``parents`` [N]: the row
    before in the same path, counted within the stream, -1 for the committed ones; empty = chains. A parent comes before its children.
    Row r of a stream is written to place start + r; its position is one past its parent's. Results are the other arrays.
    """
    half = cos.shape[1]
    row = 0
    path = np.empty(row_slots.shape[0] + 1, np.int64)
    for i in range(len(slots)):
        start, first = starts[i], row
        for r in range(numbers[i]):
            depth, at = 0, r
            while at >= 0:
                path[depth] = at
                depth += 1
                at = parents[first + at] if len(parents) else at - 1
            position = start + depth - 1
            row_slots[row] = slots[i]
            places[row] = (start + r) % ring
            oldest = max(0, position - window + 1)
            count = 0
            for p in range(oldest, start):
                visible[row, count] = p % ring
                count += 1
            for d in range(min(depth, window) - 1, -1, -1):
                visible[row, count] = (start + path[d]) % ring
                count += 1
            counts[row] = count
            for k in range(half):
                angle = position * base ** (-k / half)
                cos[row, k] = np.cos(angle)
                sin[row, k] = np.sin(angle)
            row += 1


@numba.njit(cache=True, nogil=True)
def run_layers(
    x: Floats,  # [N, width] the residual: inputs of layer ``first``, afterwards outputs of the last
    first: int,
    last: int,  # layers first to last - 1 are run
    weights: Words,  # all matrices of all layers, one after another: qkv, out, gate_up, down
    pairs: bool,
    norms: Floats,  # [2 layers + 1, width]
    biases: Floats,  # [layers, heads + 2 kv_heads, hw] of qkv, or [0, ...]
    head_norms: Floats,  # [layers, 2, hw] of queries and keys (Qwen3), or [0, ...]
    eps: np.float32,
    hidden: int,
    heads: int,
    keys: Floats,  # [layers, slots, kv_heads, ring / 64, hw, 64]
    values: Floats,  # [layers, slots, kv_heads, ring, hw to a multiple of 16]
    slots: Ints,
    places: Places,
    visible: Places,
    counts: Ints,
    cos: Floats,
    sin: Floats,
    taps: Ints,  # numbers of layers, counted from layer 0, after which the residual is kept
    tapped: Floats,  # [N, at least len(taps), width]
    out: Floats,  # [N, width]
) -> None:
    """Layers of a pass; see ``lay_out`` for where rows read and write. ``out`` is normed by row 2 ``last`` of ``norms``."""
    number, width = x.shape
    kv_heads, blocks, head_width = keys.shape[2], keys.shape[3], keys.shape[4]
    joined_heads, inner = heads + 2 * kv_heads, heads * head_width
    per_word = 2 if pairs else 1
    widest = max(width, hidden, inner)
    words = np.zeros(number * ((widest + 1) // per_word + 1), np.uint32)
    wide = np.empty(number * (max(joined_heads * head_width, 2 * hidden, width) + BLOCK), np.float32)
    joined = np.empty((number, joined_heads, head_width), np.float32)
    attended = np.empty((number, inner), np.float32)
    gated = np.empty((number, hidden), np.float32)
    added = np.zeros((number, width), np.float32)
    longest = visible.shape[1]
    groups = heads // kv_heads
    raw, scores = np.empty((groups, blocks * BLOCK), np.float32), np.empty((groups, longest), np.float32)
    powers = np.empty(longest, np.int32)
    as_float = powers.view(np.float32)
    at = first * (len(weights) // keys.shape[0])
    for layer in range(first, last):
        add_and_norm(x, added, norms[2 * layer], eps, out)
        at = _linear(out, width, joined_heads * head_width, weights, at, pairs, words, wide, joined.reshape(number, -1))
        if len(biases):
            for n in range(number):
                joined[n] += biases[layer]
        if len(head_norms):
            for n in range(number):
                for h in range(heads + kv_heads):
                    _norm_head(joined[n, h], head_norms[layer, 0 if h < heads else 1], eps)
        rotate_and_store(joined, cos, sin, slots, places, keys[layer], values[layer])
        attend(joined, slots, visible, counts, keys[layer], values[layer], raw, scores, powers, as_float, attended)
        at = _linear(attended, inner, width, weights, at, pairs, words, wide, added)
        add_and_norm(x, added, norms[2 * layer + 1], eps, out)
        steps = (width + per_word - 1) // per_word
        outputs = (2 * hidden + BLOCK - 1) // BLOCK
        made = wide[: number * outputs * BLOCK].reshape(number, outputs * BLOCK)
        matrix = weights[at : at + outputs * steps * BLOCK].reshape(outputs, steps, BLOCK)
        product(out, width, matrix, pairs, words[: number * steps].reshape(number, steps), made)
        at += outputs * steps * BLOCK
        swiglu(made, gated)
        at = _linear(gated, hidden, width, weights, at, pairs, words, wide, added)
        for t in range(len(taps)):
            if taps[t] == layer + 1:
                for n in range(number):
                    for i in range(width):
                        tapped[n, t, i] = x[n, i] + added[n, i]
    add_and_norm(x, added, norms[2 * last], eps, out)


@numba.njit(cache=True, nogil=True)
def run_pass(
    x: Floats, slots: Ints, starts: Ints, numbers: Ints, parents: Ints, window: int, base: float,
    weights: Words, pairs: bool, norms: Floats, biases: Floats, head_norms: Floats, eps: np.float32,
    hidden: int, heads: int, keys: Floats, values: Floats, taps: Ints,
) -> Floats:  # fmt: skip
    """``lay_out`` and all layers of ``run_layers`` -> [N, taps + 1, width]: residuals at the taps and the hidden state."""
    number, width = x.shape
    half = keys.shape[4] // 2
    row_slots, counts = np.empty(number, np.int64), np.empty(number, np.int64)
    places, visible = np.empty(number, np.int32), np.empty((number, window), np.int32)
    cos, sin = np.empty((number, half), np.float32), np.empty((number, half), np.float32)
    lay_out(
        slots, starts, numbers, parents, window, keys.shape[3] * BLOCK, base, row_slots, places, visible, counts, cos, sin
    )  # fmt: skip
    states, out = np.empty((number, len(taps) + 1, width), np.float32), np.empty((number, width), np.float32)
    run_layers(
        x, 0, keys.shape[0], weights, pairs, norms, biases, head_norms, eps, hidden, heads, keys, values,
        row_slots, places, visible, counts, cos, sin, taps, states, out,
    )  # fmt: skip
    states[:, -1] = out
    return states


@numba.njit(cache=True, nogil=True)
def _linear(
    x: Floats, columns: int, outputs: int, weights: Words, at: int, pairs: bool, words: Words, wide: Floats, out: Floats
) -> int:
    """``out`` [N, outputs] = ``x`` times the packed matrix that begins at word ``at`` of ``weights`` -> where the next one begins."""
    number, per_word = x.shape[0], 2 if pairs else 1
    steps, blocks = (columns + per_word - 1) // per_word, (outputs + BLOCK - 1) // BLOCK
    matrix = weights[at : at + blocks * steps * BLOCK].reshape(blocks, steps, BLOCK)
    used = words[: number * steps].reshape(number, steps)
    if blocks * BLOCK == outputs:
        product(x, columns, matrix, pairs, used, out)
    else:
        made = wide[: number * blocks * BLOCK].reshape(number, blocks * BLOCK)
        product(x, columns, matrix, pairs, used, made)
        out[:] = made[:, :outputs]
    return at + blocks * steps * BLOCK


@numba.njit(cache=True, nogil=True)
def decide(hidden: Floats, heads: Words, pairs: bool, due: Ints, sizes: Ints, out: Floats) -> None:
    """``out`` [N, longest] = head ``due[n]`` of ``hidden[n]`` [width]; -inf past that head's size.

    ``heads`` is a packed matrix for each codebook, [codebooks, blocks, steps, 64].
    """
    number, width = hidden.shape
    blocks, steps = heads.shape[1], heads.shape[2]
    words, made = np.zeros((number, steps), np.uint32), np.empty((number, blocks * BLOCK), np.float32)
    rows, chosen = np.empty(number, np.int64), np.empty((number, width), np.float32)
    for book in range(heads.shape[0]):
        count = 0
        for n in range(number):
            if due[n] == book:
                rows[count] = n
                chosen[count] = hidden[n]
                count += 1
        if count:
            product(chosen[:count], width, heads[book], pairs, words[:count], made[:count])
            for c in range(count):
                size = sizes[book]
                out[rows[c], :size] = made[c, :size]
                out[rows[c], size:] = -np.inf
