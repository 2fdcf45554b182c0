"""The noise: fixed by its key, independent across keys, Gumbel in distribution, never changing."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import numpy.typing as npt
import pytest

from tts_spec.speculate.noise import GumbelNoise


def rows(noise: GumbelNoise, positions: range) -> npt.NDArray[np.float32]:
    return np.stack([noise.at(position) for position in positions])


def test_value_depends_on_the_key_alone_not_on_the_order_asked() -> None:
    expected = rows(GumbelNoise(11, 2, 34), range(1000))
    noise = GumbelNoise(11, 2, 34)
    order = list(range(1000))
    random.Random(1).shuffle(order)
    for position in order:
        assert np.array_equal(noise.at(position), expected[position])
    # As rounds ask: forward in steps, each time back a little.
    noise = GumbelNoise(11, 2, 34)
    for start in range(0, 980, 3):
        for position in range(start, start + 16):
            assert np.array_equal(noise.at(position), expected[position])


def test_a_caller_cannot_change_it() -> None:
    noise = GumbelNoise(1, 0, 34)
    with pytest.raises(ValueError, match="read-only"):
        noise.at(3)[0] = 0.0


@pytest.mark.parametrize("other", [(4, 0), (3, 1), (2**63 - 1, 0), (3, 2**63 - 1)])
def test_other_seeds_and_streams_are_independent(other: tuple[int, int]) -> None:
    first = rows(GumbelNoise(3, 0, 34), range(2000)).ravel()
    second = rows(GumbelNoise(*other, 34), range(2000)).ravel()
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(first.size)
    assert (first == second).mean() < 1e-4


def test_positions_and_options_are_independent() -> None:
    values = rows(GumbelNoise(3, 0, 34), range(3000))
    bound = 5 / np.sqrt(values.size)
    for lag in (1, 2, 63, 64, 65, 128):
        assert abs(np.corrcoef(values[lag:].ravel(), values[:-lag].ravel())[0, 1]) < bound
    for shift in (1, 2, 17):
        assert abs(np.corrcoef(values.ravel(), np.roll(values, shift, axis=1).ravel())[0, 1]) < bound


def test_it_is_standard_gumbel() -> None:
    values = np.sort(rows(GumbelNoise(5, 0, 100), range(2000)).ravel().astype(np.float64))
    assert np.isfinite(values).all()
    assert values.mean() == pytest.approx(np.euler_gamma, abs=5 * np.pi / np.sqrt(6 * values.size))
    cdf = np.exp(-np.exp(-values))
    steps = np.arange(values.size) / values.size
    assert np.abs(cdf - steps).max() < 2.2 / np.sqrt(values.size)  # Kolmogorov-Smirnov, p about 1e-4


def test_values_are_those_of_the_first_release() -> None:
    """Saved seeds must speak the same for ever; a failure here means NumPy or the definition has changed."""
    values = rows(GumbelNoise(7, 0, 34), range(200))
    assert values.dtype == np.float32
    assert hashlib.sha256(values.astype("<f4").tobytes()).hexdigest() == GOLDEN
    full = rows(GumbelNoise(2**62 + 1, 5, 1026), range(63, 66))
    assert full[:, [0, 511, 1025]].ravel().tolist() == pytest.approx(GOLDEN_VALUES, abs=1e-6)


GOLDEN = "a69ffeed30c44c7e2fd5796587748c8432f7875ff0f16f3f2589ef0792aead1c"
GOLDEN_VALUES = [-1.336452, -0.029329, 2.279784, -0.441369, 1.727971, 1.502118, 0.685102, -0.411750, -0.806757]
