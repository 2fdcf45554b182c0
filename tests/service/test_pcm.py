"""Samples to bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from service.pcm import encode

SAMPLES = hnp.arrays(np.float32, st.integers(0, 50), elements=st.floats(-4, 4, width=32))


def test_full_scale_does_not_wrap_around() -> None:
    """CosyVoice servers turned +1.0 into -32768 (latency.md 3.2)."""
    loud = np.array([1.0, -1.0, 1.5, -1.5, 0.0], dtype=np.float32)
    assert np.frombuffer(encode(loud, "pcm_s16le"), "<i2").tolist() == [32767, -32767, 32767, -32768, 0]


@given(SAMPLES)
@settings(deadline=None, max_examples=50)
def test_16_bit_is_the_nearest_value_in_range(pcm: np.ndarray) -> None:
    got = np.frombuffer(encode(pcm, "pcm_s16le"), "<i2").astype(np.float64)
    want = np.clip(pcm.astype(np.float64) * 32767, -32768, 32767)
    assert got.shape == pcm.shape
    assert np.all(np.abs(got - want) <= 0.51)


@given(SAMPLES)
@settings(deadline=None, max_examples=50)
def test_32_bit_float_is_the_samples_themselves(pcm: np.ndarray) -> None:
    assert np.array_equal(np.frombuffer(encode(pcm, "pcm_f32le"), "<f4"), pcm)
