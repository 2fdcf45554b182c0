"""A decoding pass on the CPU, compiled by numba: the layers of a transformer for a few new positions of some streams, in one call.

In torch such a pass is some hundred operators of a few microseconds each; here it takes about as long as its weights take to be read.
Every row is computed by itself, in the same order of sums whatever rows are beside it and wherever in the ring its keys lie: a pass of 8
rows equals 8 passes of one, bit by bit, and a node of a tree equals the same position of a chain. Compiled at first use, kept on disk by
numba. Knows arrays only.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from models.attention import Layout, attend, lay_out, make_scratch, rotate_and_store
from models.exponential import FAST, LEAST, LOG2_E, MOST, two_to_rest, two_to_whole
from models.products import AHEAD, BLOCK, Floats, Words, product

Ints = npt.NDArray[np.int64]


@numba.njit(cache=True, nogil=True)
def embed(
    items: Ints, dropped: int, tokens: Floats, counts: Floats, entry: Floats, inside: Floats, out: Floats
) -> None:
    """``items`` [N, at least 3]: token or below 0, phoneme, frames -> ``out`` [N, width]: the phoneme's row of ``entry``, or the sum of the
    rows of token, count and phoneme. Row 0 of ``entry`` and ``inside`` is phoneme ``dropped``. Raises IndexError for a row there is not."""
    for n in range(len(items)):
        token, phoneme = items[n, 0], items[n, 1] - dropped
        if not 0 <= phoneme < len(entry) or token >= len(tokens):
            raise IndexError("an input names a token or a phoneme that is not there")
        if token < 0:
            out[n] = entry[phoneme]
        else:
            out[n] = tokens[token] + counts[min(items[n, 2], len(counts) - 1)] + inside[phoneme]


@numba.njit(fastmath=FAST, cache=True, nogil=True)
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


@numba.njit(fastmath=FAST, cache=True, nogil=True)
def norm(x: Floats, scale: Floats, eps: np.float32, out: Floats) -> None:
    """``out`` = RMSNorm of ``x`` [N, width] times ``scale`` [width]."""
    add_and_norm(x.copy(), np.zeros_like(x), scale, eps, out)


@numba.njit(fastmath=FAST, error_model="numpy", cache=True, nogil=True)  # no test for 0: so divisions are vectors
def swiglu(gate_up: Floats, out: Floats) -> None:
    """``gate_up`` [N, at least 2 hidden] -> ``out`` [N, hidden]: SiLU of the first half times the second (Shazeer 2020)."""
    hidden = out.shape[1]
    powers = np.empty(hidden, np.int32)
    as_float = powers.view(np.float32)
    for n in range(out.shape[0]):
        for i in range(hidden):
            gate = gate_up[n, i]
            y = min(max(-gate * LOG2_E, LEAST), MOST)
            whole = np.floor(y)
            powers[i] = two_to_whole(whole)
            out[n, i] = two_to_rest(y - whole)
        for i in range(hidden):
            gate = gate_up[n, i]
            out[n, i] = gate / (np.float32(1) + out[n, i] * as_float[i]) * gate_up[n, hidden + i]


@numba.njit(fastmath=FAST, cache=True, nogil=True)
def _norm_head(head: Floats, scale: Floats, eps: np.float32) -> None:
    total = np.float32(0)
    for i in range(len(head)):
        total += head[i] * head[i]
    factor = np.float32(1) / np.sqrt(total / np.float32(len(head)) + eps)
    for i in range(len(head)):
        head[i] *= factor * scale[i]


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
    head_width: int,
    keys: Words,  # [layers, ...] of ``rotate_and_store``
    values: Words,
    layout: Layout,
    taps: Ints,  # numbers of layers, counted from layer 0, after which the residual is kept
    tapped: Floats,  # [N, at least len(taps), width]
    out: Floats,  # [N, width]
) -> None:
    """Layers of a pass; see ``lay_out`` for where rows read and write. ``out`` is normed by row 2 ``last`` of ``norms``."""
    number, width = x.shape
    kv_heads = keys.shape[2]
    joined_heads, inner = heads + 2 * kv_heads, heads * head_width
    per_word = 2 if pairs else 1
    widest = max(width, hidden, inner)
    words = np.zeros(number * ((widest + 1) // per_word + 1), np.uint32)
    wide = np.empty(number * (max(joined_heads * head_width, 2 * hidden, width) + BLOCK), np.float32)
    joined = np.empty((number, joined_heads, head_width), np.float32)
    attended = np.empty((number, inner), np.float32)
    gated = np.empty((number, hidden), np.float32)
    added = np.zeros((number, width), np.float32)
    padded, ring = values.shape[4] * per_word, values.shape[3]
    scratch = make_scratch(layout, head_width, padded, ring, pairs)
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
        rotate_and_store(joined, layout, pairs, keys[layer], values[layer])
        attend(
            joined, layout, pairs, keys[layer], values[layer], scratch, attended, weights.ctypes.data + at * 4 + AHEAD
        )
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
    x: Floats, slots: Ints, starts: Ints, numbers: Ints, begun: Ints, parents: Ints, window: int,
    frequencies: npt.NDArray[np.float64], first: int, last: int, weights: Words, pairs: bool, norms: Floats, biases: Floats,
    head_norms: Floats, eps: np.float32, hidden: int, heads: int, keys: Words, values: Words, taps: Ints, states: Floats,
) -> None:  # fmt: skip
    """``lay_out`` and layers ``first`` to ``last`` - 1 by ``run_layers``: ``states`` [N, taps + 1, width] = residuals at those of the taps
    that are passed, and the hidden state or, where layers are left, the residual. Overwrites ``x``."""
    layout = lay_out(slots, starts, numbers, begun, parents, window, values.shape[3], frequencies)
    out = np.empty(x.shape, np.float32)
    run_layers(
        x, first, last, weights, pairs, norms, biases, head_norms, eps, hidden, heads, 2 * len(frequencies), keys,
        values, layout, taps, states, out,
    )  # fmt: skip
    states[:, -1] = out if last == keys.shape[0] else x


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


# What ``follow`` needs of a model: tables of tokens and counts, then what ``run_pass`` and ``decide`` want, in this order.
Network = tuple[Any, ...]


@numba.njit(cache=True, nogil=True)
def follow(
    network: Network, entry: Floats, inside: Floats, dropped: int, items: Ints, slot: int, start: int, added: Floats
) -> Floats:
    """Logits [longest head] after the last of ``items`` [N, 4] (token, phoneme, frames, due), a chain at ``start`` in ring ``slot``.

    ``entry``, ``inside``, ``dropped``: see ``embed``. ``added`` [N, width] comes on top of the inputs, or [0, width]."""
    (
        tokens, counts, window, frequencies, weights, pairs, norms, biases, head_norms, eps, hidden, heads, keys, values,
        head_words, sizes,
    ) = network  # fmt: skip
    number = len(items)
    x = np.empty((number, tokens.shape[1]), np.float32)
    embed(items, dropped, tokens, counts, entry, inside, x)
    if len(added):
        x += added
    states = np.empty((number, 1, x.shape[1]), np.float32)
    none = np.empty(0, np.int64)
    run_pass(
        x, np.full(1, slot), np.full(1, start), np.full(1, number), np.zeros(1, np.int64), none, window, frequencies, 0,
        keys.shape[0], weights, pairs, norms, biases, head_norms, eps, hidden, heads, keys, values, none, states,
    )  # fmt: skip
    logits = np.empty((1, sizes.max()), np.float32)
    decide(states[number - 1], head_words, pairs, items[number - 1 :, 3], sizes, logits)
    last: Floats = logits[0]
    return last
