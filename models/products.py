"""Products of a few rows with a packed matrix, compiled by numba: the tiles of ``models.vectors`` put together.

Packed matrix: words uint32 [blocks, steps, 64]; block b holds the outputs 64 b and after (zeros past the last), a word one float32 or two
bfloat16 weights; ``steps`` words along the inputs. Every row is computed by itself, whatever rows are beside it. Knows arrays only.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from models.vectors import MOST_ROWS, product_tile

Floats = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint32]

BLOCK = 64
AHEAD = 16 * 1024  # bytes of a matrix fetched before they are needed

_pairs_1, _pairs_2, _pairs_3, _pairs_4, _pairs_5, _pairs_6 = (
    product_tile(rows, pairs=True) for rows in range(1, MOST_ROWS + 1)
)
_words_1, _words_2, _words_3, _words_4, _words_5, _words_6 = (
    product_tile(rows, pairs=False) for rows in range(1, MOST_ROWS + 1)
)


@numba.njit(nogil=True, cache=True, inline="never")
def multiply(
    x: int, x_stride: int, rows: int, weights: int, blocks: int, steps: int, pairs: bool, out: int, out_stride: int,
    fetched: int,
) -> None:  # fmt: skip
    """Rows of words at address ``x`` times a packed matrix -> float32 rows of 64 ``blocks`` at ``out``; strides in bytes. Meanwhile as
    many bytes as the matrix has are fetched into the cache from ``fetched`` on: a row tile waits for memory what it would compute."""
    for block in range(blocks):
        w = weights + block * steps * 256
        at, f = out + block * 256, fetched + block * steps * 256
        row = 0
        while row < rows:
            left = rows - row
            count = min(left, 6) if left != 7 and left != 8 else 4
            a, b = x + row * x_stride, at + row * out_stride
            if pairs:
                if count == 1:
                    _pairs_1(a, x_stride, w, b, out_stride, steps, f)
                elif count == 2:
                    _pairs_2(a, x_stride, w, b, out_stride, steps, f)
                elif count == 3:
                    _pairs_3(a, x_stride, w, b, out_stride, steps, f)
                elif count == 4:
                    _pairs_4(a, x_stride, w, b, out_stride, steps, f)
                elif count == 5:
                    _pairs_5(a, x_stride, w, b, out_stride, steps, f)
                else:
                    _pairs_6(a, x_stride, w, b, out_stride, steps, f)
            elif count == 1:
                _words_1(a, x_stride, w, b, out_stride, steps, f)
            elif count == 2:
                _words_2(a, x_stride, w, b, out_stride, steps, f)
            elif count == 3:
                _words_3(a, x_stride, w, b, out_stride, steps, f)
            elif count == 4:
                _words_4(a, x_stride, w, b, out_stride, steps, f)
            elif count == 5:
                _words_5(a, x_stride, w, b, out_stride, steps, f)
            else:
                _words_6(a, x_stride, w, b, out_stride, steps, f)
            row += count


@numba.njit(nogil=True, cache=True)
def to_words(x: Floats, columns: int, pairs: bool, words: Words) -> None:
    """The first ``columns`` of ``x`` [N, at least that] as ``words`` [N, steps]: as they are, or pairs rounded to nearest even."""
    bits = x.view(np.uint32)
    for n in range(x.shape[0]):
        if pairs:
            for i in range(columns // 2):
                low, high = bits[n, 2 * i], bits[n, 2 * i + 1]
                low = (low + np.uint32(0x7FFF) + ((low >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
                high = (high + np.uint32(0x7FFF) + ((high >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
                words[n, i] = low | high
            if columns % 2:
                low = bits[n, columns - 1]
                low = (low + np.uint32(0x7FFF) + ((low >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
                words[n, columns // 2] = low
        else:
            for i in range(columns):
                words[n, i] = bits[n, i]


@numba.njit(nogil=True, cache=True)
def product(x: Floats, columns: int, weights: Words, pairs: bool, words: Words, out: Floats) -> None:
    """``x`` [N, at least ``columns``] times the packed ``weights`` -> ``out`` [N, 64 blocks]; ``words`` [N, steps] is scratch."""
    blocks, steps = weights.shape[0], weights.shape[1]
    to_words(x, columns, pairs, words)
    multiply(
        words.ctypes.data, words.shape[1] * 4, x.shape[0], weights.ctypes.data, blocks, steps, pairs, out.ctypes.data,
        out.shape[1] * 4, weights.ctypes.data + AHEAD,
    )  # fmt: skip
