"""Powers of two as code that vectorises, unlike a call of exp, and the liberties of its sums. For numba; knows numbers only."""

from __future__ import annotations

import numba
import numpy as np

# Sums may be split into vector lanes: the same way every time, for the split depends on a row's own lengths alone.
FAST = {"reassoc", "contract", "nsz", "arcp", "nnan"}
LOG2_E = np.float32(1.4426950408889634)
LEAST, MOST = np.float32(-126.0), np.float32(126.0)  # exponents of which ``two_to_whole`` makes a normal float32


@numba.njit(fastmath=FAST, cache=True, nogil=True)
def two_to_rest(rest: np.float32) -> np.float32:
    """2^rest for 0 <= rest < 1. The error is that of rounding."""
    value = np.float32(1.8775767e-3) * rest + np.float32(8.9893397e-3)
    value = value * rest + np.float32(5.5826318e-2)
    value = value * rest + np.float32(2.4015361e-1)
    value = value * rest + np.float32(6.9315308e-1)
    return value * rest + np.float32(9.9999994e-1)


@numba.njit(fastmath=FAST, cache=True, nogil=True)
def two_to_whole(whole: np.float32) -> np.int32:
    """The bits of 2^whole in float32, for a whole number from LEAST to MOST."""
    return (np.int32(whole) + np.int32(127)) << np.int32(23)
