"""The arithmetic of a decoding step of the codec, compiled by numba: ConvNeXt blocks, source, filters, overlap-add.

In torch such a step is some two hundred operators of a few microseconds each; here it takes about as long as its weights take to be read.
Every row is computed by itself in one order of sums, so a stream gets, bit for bit, the same samples however it is cut and whoever is
decoded beside it. Compiled at first use, kept on disk by numba. Knows arrays, and the states of streams by their addresses.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import carray

from models.codec.source import BINS, HOP, NOISE_PERIOD, SAMPLE_RATE, WINDOW
from models.exponential import FAST, LEAST, LOG2_E, two_to_rest, two_to_whole
from models.products import BLOCK, Floats, Words, product

Ints = npt.NDArray[np.int64]
Bits = npt.NDArray[np.int32]
Doubles = npt.NDArray[np.float64]

ENTER_PAST, PAST = 2, 6  # inputs that the first convolution and those of the blocks remember
OVERLAP = WINDOW - HOP
CLOCK = 3  # numbers of a source's clock: cycles at the last frame's centre, its F0 in Hz (0 = unvoiced), frames so far

# Division as NumPy does it ("error_model"): Python's check for zero would keep a loop from being vectorised.
_SQRT_HALF = np.float32(math.sqrt(0.5))
_INVERSE_PI = np.float32(1 / math.pi)
_EPS = np.float32(1e-5)  # of a LayerNorm
_LOG2_150 = 7.23

# Taylor series in x or x^2, highest power first, to less than float32's rounding for x in [-1/2, 1/2].
_SIN = tuple(np.float32((-1) ** (k // 2) * math.pi**k / math.factorial(k)) for k in range(13, 0, -2))
_COS = tuple(np.float32((-1) ** (k // 2) * math.pi**k / math.factorial(k)) for k in range(14, -1, -2))
# erf(x) = x P(x^2) / Q(x^2) for x in [-4, 4], as in Eigen and XLA.
_P = tuple(map(np.float32, (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
                            -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02)))  # fmt: skip
_Q = tuple(map(np.float32, (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
                            -1.42647390514189e-02)))  # fmt: skip


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    """An address as what ``numba.carray`` takes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.intp), generate


@numba.njit(cache=True, nogil=True)
def _floats_at(address: int, rows: int, columns: int) -> Floats:
    made: Floats = carray(_pointer(address), (rows, columns), np.float32)  # type: ignore[call-arg]
    return made


@numba.njit(cache=True, nogil=True)
def _clock_at(address: int) -> Doubles:
    made: Doubles = carray(_pointer(address), (CLOCK,), np.float64)  # type: ignore[call-arg]
    return made


@numba.njit(fastmath=FAST, error_model="numpy", cache=True, nogil=True)
def _sin_pi(x: np.float32) -> np.float32:
    """sin(pi x) for -1/2 <= x <= 1/2."""
    c, y = _SIN, x * x
    return ((((((c[0] * y + c[1]) * y + c[2]) * y + c[3]) * y + c[4]) * y + c[5]) * y + c[6]) * x


@numba.njit(fastmath=FAST, error_model="numpy", cache=True, nogil=True)
def _cos_pi(x: np.float32) -> np.float32:
    """cos(pi x) for -1/2 <= x <= 1/2."""
    c, y = _COS, x * x
    return ((((((c[0] * y + c[1]) * y + c[2]) * y + c[3]) * y + c[4]) * y + c[5]) * y + c[6]) * y + c[7]


@numba.njit(fastmath=FAST, error_model="numpy", cache=True, nogil=True)
def _erf(x: np.float32) -> np.float32:
    x = min(max(x, np.float32(-4)), np.float32(4))
    p, q, y = _P, _Q, x * x
    upper = (((((p[0] * y + p[1]) * y + p[2]) * y + p[3]) * y + p[4]) * y + p[5]) * y + p[6]
    return x * upper / ((((q[0] * y + q[1]) * y + q[2]) * y + q[3]) * y + q[4])


@numba.njit(fastmath=FAST, error_model="numpy", cache=True, nogil=True, inline="never")
def gelu(x: Floats, bias: Floats) -> None:
    """The first ``len(bias)`` columns of ``x`` [N, at least that]: GELU of them plus ``bias``, in place (Hendrycks and Gimpel 2016)."""
    for n in range(x.shape[0]):
        row = x[n]
        for i in range(len(bias)):
            value = row[i] + bias[i]
            row[i] = np.float32(0.5) * value * (np.float32(1) + _erf(value * _SQRT_HALF))


@numba.njit(fastmath=FAST, error_model="numpy", cache=True, nogil=True, inline="never")
def layer_norm(x: Floats, scale: Floats, shift: Floats, out: Floats) -> None:
    """``out`` [N, C] = LayerNorm of ``x`` [N, C] (Ba et al. 2016); the two may be the same."""
    width = len(scale)
    for n in range(x.shape[0]):
        row, made = x[n], out[n]
        total = np.float32(0)
        for i in range(width):
            total += row[i]
        mean = total / np.float32(width)
        spread = np.float32(0)
        for i in range(width):
            spread += (row[i] - mean) * (row[i] - mean)
        factor = np.float32(1) / np.sqrt(spread / np.float32(width) + _EPS)
        for i in range(width):
            made[i] = (row[i] - mean) * factor * scale[i] + shift[i]


@numba.njit(fastmath=FAST, error_model="numpy", cache=True, nogil=True, inline="never")
def depthwise(padded: Floats, weight: Floats, bias: Floats, out: Floats) -> None:
    """``out`` [T, C] = causal depthwise convolution of ``padded`` [PAST + T, C], ``weight`` [PAST + 1, C]."""
    for t in range(out.shape[0]):
        row = out[t]
        a, b, c, d = padded[t], padded[t + 1], padded[t + 2], padded[t + 3]
        e, f, g = padded[t + 4], padded[t + 5], padded[t + 6]
        for i in range(len(bias)):
            early = bias[i] + weight[0, i] * a[i] + weight[1, i] * b[i] + weight[2, i] * c[i]
            row[i] = early + weight[3, i] * d[i] + weight[4, i] * e[i] + weight[5, i] * f[i] + weight[6, i] * g[i]


@numba.njit(fastmath=FAST, error_model="numpy", cache=True, nogil=True, inline="never")
def add_scaled(x: Floats, made: Floats, bias: Floats, scale: Floats) -> None:
    """``x`` [N, C] += ``scale`` (``made`` [N, at least C] + ``bias``)."""
    for n in range(x.shape[0]):
        row, added = x[n], made[n]
        for i in range(len(bias)):
            row[i] += scale[i] * (added[i] + bias[i])


@numba.njit(cache=True, nogil=True)
def run_blocks(
    x: Floats,  # [N, C] rows of all streams, one stream after another; overwritten by the result
    counts: Ints,  # rows of each stream
    first: int,
    last: int,  # blocks first to last - 1 are run
    pasts: Ints,  # address of each stream's past inputs, [blocks, PAST, C] floats
    convolution: Floats,  # [blocks, PAST + 2, C]: a weight for each input of the window, the latest last, and the bias
    norms: Floats,  # [blocks, 2, C] scale and shift
    up: Words,  # [blocks, packed matrix]
    up_bias: Floats,  # [blocks, hidden]
    down: Words,
    down_bias: Floats,  # [blocks, 2, C] bias and layer scale
    pairs: bool,
) -> None:
    """ConvNeXt blocks; pasts are moved on."""
    number, width = x.shape
    hidden = up_bias.shape[1]
    most = 0
    for count in counts:
        most = max(most, count)
    padded = np.empty((PAST + most, width), np.float32)
    y = np.empty((number, width), np.float32)
    wide = np.empty((number, up.shape[1] * BLOCK), np.float32)
    made = np.empty((number, down.shape[1] * BLOCK), np.float32)
    narrow_words, wide_words = np.zeros((number, up.shape[2]), np.uint32), np.zeros((number, down.shape[2]), np.uint32)
    for block in range(first, last):
        row = 0
        for stream in range(len(counts)):
            count = counts[stream]
            past = _floats_at(pasts[stream] + block * PAST * width * 4, PAST, width)
            padded[:PAST] = past
            padded[PAST : PAST + count] = x[row : row + count]
            depthwise(
                padded[: PAST + count],
                convolution[block, : PAST + 1],
                convolution[block, PAST + 1],
                y[row : row + count],
            )
            past[:] = padded[count : count + PAST]
            row += count
        layer_norm(y, norms[block, 0], norms[block, 1], y)
        product(y, width, up[block], pairs, narrow_words, wide)
        gelu(wide, up_bias[block])
        product(wide, hidden, down[block], pairs, wide_words, made)
        add_scaled(x, made, down_bias[block, 0], down_bias[block, 1])


@numba.njit(cache=True, nogil=True)
def enter(
    codes: Ints,  # [K, N] rows of all streams, one stream after another, as rows of ``table``
    counts: Ints,
    pasts: Ints,  # address of each stream's past inputs, [ENTER_PAST, inputs] floats
    table: Floats,  # [K codebook_size, inputs]
    weight: Words,  # packed, columns [ENTER_PAST + 1, inputs]
    bias: Floats,  # [C]
    pairs: bool,
) -> Floats:
    """Vectors of codes, summed over the codebooks, through the first convolution -> [N, C]; pasts are moved on."""
    inputs, number = table.shape[1], codes.shape[1]
    windows = np.empty((number, (ENTER_PAST + 1) * inputs), np.float32)
    row = 0
    for stream in range(len(counts)):
        count = counts[stream]
        past = _floats_at(pasts[stream], ENTER_PAST, inputs)
        padded = np.empty((ENTER_PAST + count, inputs), np.float32)
        padded[:ENTER_PAST] = past
        for t in range(count):
            vector = padded[ENTER_PAST + t]
            vector[:] = table[codes[0, row + t]]
            for book in range(1, codes.shape[0]):
                vector += table[codes[book, row + t]]
        past[:] = padded[count : count + ENTER_PAST]
        for t in range(count):
            windows[row + t] = padded[t : t + ENTER_PAST + 1].reshape(-1)
        row += count
    made = np.empty((number, weight.shape[0] * BLOCK), np.float32)
    words = np.zeros((number, weight.shape[1]), np.uint32)
    product(windows, windows.shape[1], weight, pairs, words, made)
    return made[:, : len(bias)] + bias


@numba.njit(fastmath=FAST, error_model="numpy", cache=True, nogil=True, inline="never")
def dirichlet(phase: np.float32, f0: np.float32, slope: np.float32, chirp: Floats, window: Floats, out: Floats) -> None:
    """``out`` [WINDOW] = windowed sum of all harmonics below Nyquist with unit power; see ``HarmonicSource``."""
    rise, bend = chirp[0], chirp[1]
    count = np.floor(np.float32(SAMPLE_RATE / 2) / max(f0, np.float32(20)))
    odd = np.float32(2) * count + np.float32(1)
    level = np.float32(1) / np.sqrt(np.float32(2) * count)
    for i in range(len(out)):
        cycles = phase + f0 * rise[i] + slope * bend[i]
        part = cycles - np.floor(cycles + np.float32(0.5))  # within [-1/2, 1/2]
        if abs(part) < np.float32(3.2e-6):  # 0 / 0 there, and by so little the peak changes by 1e-5 of itself
            part = np.float32(3.2e-6)
        turns = odd * part
        whole = np.floor(turns + np.float32(0.5))
        sign = np.float32(1) - np.float32(2) * (whole - np.float32(2) * np.floor(whole * np.float32(0.5)))
        value = sign * _sin_pi(turns - whole) / _sin_pi(part) - np.float32(1)  # 2 x sum of cosines
        out[i] = value * level * window[i]


@numba.njit(cache=True, nogil=True)
def source(
    x: Floats,  # [N, C]
    counts: Ints,
    clocks: Ints,  # address of each stream's clock, CLOCK doubles
    head: Floats,  # [2, C + 1] weights and bias of log2 F0 and of voicing
    entry: Floats,  # [3, C] weights of log2 F0 and voicing, bias; what the rows learn of the pitch is added to them
    chirp: Floats,  # [2, WINDOW]
    window: Floats,  # [WINDOW]
    pulses: Floats,  # [N, WINDOW], filled
    frames: Ints,  # [N], filled: number of each frame in its stream
) -> Floats:
    """The pitch of every row in Hz [N], 0 = unvoiced, its pulses, and what the next blocks are told of it; clocks are moved on."""
    width = x.shape[1]
    pitch = np.empty(x.shape[0], np.float32)
    row = 0
    for stream in range(len(counts)):
        clock = _clock_at(clocks[stream])
        for _ in range(counts[stream]):
            log_f0, voicing = _dot(x[row], head[0]), _dot(x[row], head[1])
            f0, before = np.float32(0), np.float32(clock[1])
            if voicing > 0:
                f0 = np.float32(2.0 ** min(max(np.float64(log_f0) + _LOG2_150, 5.3), 9.3))
            slope, mean = np.float32(0), np.float64(f0)
            if f0 > 0 and before > 0:
                mean = (np.float64(before) + f0) / 2
                slope = min(max((f0 - before) / np.float32(HOP), np.float32(-0.1)), np.float32(0.1))  # Hz a sample
            # float64: the running phase must not drift.
            clock[0] = (clock[0] + mean * (HOP / SAMPLE_RATE)) % 1.0
            clock[1] = f0
            frames[row] = np.int64(clock[2])
            clock[2] += 1
            pitch[row] = f0
            if f0 > 0:
                dirichlet(np.float32(clock[0]), f0, slope, chirp, window, pulses[row])
                shown = np.float32(np.log2(max(f0, np.float32(20))) - _LOG2_150)
                for i in range(width):
                    x[row, i] += entry[0, i] * shown + entry[1, i] + entry[2, i]
            else:
                pulses[row] = 0
                x[row] += entry[2]
            row += 1
    return pitch


@numba.njit(fastmath=FAST, error_model="numpy", cache=True, nogil=True, inline="never")
def _dot(row: Floats, weight: Floats) -> np.float32:
    """``row`` [C] times ``weight`` [C + 1], the last of it the bias."""
    total = np.float32(0)
    for i in range(len(row)):
        total += row[i] * weight[i]
    made: np.float32 = total + weight[len(row)]
    return made


@numba.njit(cache=True, nogil=True)
def filters(x: Floats, norm: Floats, head: Words, bias: Floats, pairs: bool) -> Floats:
    """LayerNorm by ``norm`` [2, C] and the packed head -> [N, at least 3 BINS]: log gain and phase of the pulses' filter, log gain of the
    noise's."""
    normed = np.empty_like(x)
    layer_norm(x, norm[0], norm[1], normed)
    made = np.empty((x.shape[0], head.shape[0] * BLOCK), np.float32)
    product(normed, x.shape[1], head, pairs, np.zeros((x.shape[0], head.shape[1]), np.uint32), made)
    for n in range(x.shape[0]):
        made[n, : len(bias)] += bias
    return made


@numba.njit(fastmath=FAST, error_model="numpy", cache=True, nogil=True, inline="never")
def _exponentials(x: Floats, powers: Bits, as_float: Floats) -> None:
    """exp(min(x, 6)) in place; ``as_float`` is the scratch ``powers`` seen as float32."""
    for i in range(len(x)):
        y = max(min(x[i], np.float32(6)) * LOG2_E, LEAST)
        whole = np.floor(y)
        powers[i] = two_to_whole(whole)
        x[i] = two_to_rest(y - whole)
    for i in range(len(x)):
        x[i] *= as_float[i]


@numba.njit(fastmath=FAST, error_model="numpy", cache=True, nogil=True, inline="never")
def _filter(made: Floats, noise: Floats, spectrum: Floats) -> None:
    """One row of ``shape``."""
    for i in range(BINS):
        turns = made[BINS + i] * _INVERSE_PI
        whole = np.floor(turns + np.float32(0.5))
        sign = np.float32(1) - np.float32(2) * (whole - np.float32(2) * np.floor(whole * np.float32(0.5)))
        gain = made[i] * sign
        real, imaginary = gain * _cos_pi(turns - whole), gain * _sin_pi(turns - whole)
        a, b, level = spectrum[2 * i], spectrum[2 * i + 1], made[2 * BINS + i]
        spectrum[2 * i] = a * real - b * imaginary + noise[2 * i] * level
        spectrum[2 * i + 1] = a * imaginary + b * real + noise[2 * i + 1] * level


@numba.njit(cache=True, nogil=True)
def shape(made: Floats, noise: Floats, frames: Ints, spectra: Floats) -> None:
    """``spectra`` [N, 2 BINS] of the pulses: filtered, and filtered noise added. ``made`` is of ``filters`` and is overwritten;
    ``noise`` [NOISE_PERIOD, 2 BINS]."""
    powers = np.empty(BINS, np.int32)
    as_float = powers.view(np.float32)
    for n in range(len(made)):
        _exponentials(made[n, :BINS], powers, as_float)
        _exponentials(made[n, 2 * BINS : 3 * BINS], powers, as_float)
        _filter(made[n], noise[frames[n] % NOISE_PERIOD], spectra[n])


@numba.njit(fastmath=FAST, error_model="numpy", cache=True, nogil=True)
def overlap_add(frames: Floats, window: Floats, counts: Ints, overlaps: Ints) -> Floats:
    """``frames`` [N, WINDOW] -> samples [HOP N]; ``overlaps``: address of each stream's OVERLAP samples not yet final, moved on."""
    samples = np.empty(frames.shape[0] * HOP, np.float32)
    row = 0
    for stream in range(len(counts)):
        overlap = _floats_at(overlaps[stream], 1, OVERLAP)[0]
        for _ in range(counts[stream]):
            frame = frames[row]
            for i in range(HOP):
                samples[row * HOP + i] = overlap[i] + frame[i] * window[i]
            for i in range(OVERLAP - HOP):
                overlap[i] = overlap[HOP + i] + frame[HOP + i] * window[HOP + i]
            for i in range(OVERLAP - HOP, OVERLAP):
                overlap[i] = frame[HOP + i] * window[HOP + i]
            row += 1
    return samples
