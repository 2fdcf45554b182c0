"""Committed frames to PCM: what the codec gives, faded at both sides of a silence."""

from __future__ import annotations

import numpy as np
import pytest

from tts_spec.audio.renderer import FADE_S, Renderer
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import Pcm


def frames(n: int, codebooks: int) -> list[list[int]]:
    return np.random.default_rng(3).integers(0, 64, (n, codebooks)).tolist()


@pytest.fixture
def renderer(tiny: Synthesizer) -> Renderer:
    return Renderer(tiny.bundle.codec, tiny.bundle.silence)


def test_a4_a_silence_is_entered_and_left_without_a_step(tiny: Synthesizer, renderer: Renderer) -> None:
    fade = round(FADE_S * tiny.sample_rate)
    codebooks = tiny.bundle.target.config.codebooks
    before = renderer.frames(frames(4, codebooks), before_silence=True)
    silence = renderer.silence(0.1)
    after = renderer.frames(frames(4, codebooks))
    assert len(silence) == round(0.1 * tiny.sample_rate)
    assert not silence.any()
    assert before[-1] == after[0] == 0
    plain = Renderer(tiny.bundle.codec, tiny.bundle.silence)
    whole: list[Pcm] = [plain.frames(frames(4, codebooks)) for _ in range(2)]
    assert np.array_equal(before[:-fade], whole[0][:-fade])
    assert np.array_equal(after[fade:], whole[1][fade:])
    assert np.all(np.abs(before) <= np.abs(whole[0]))


def test_samples_stay_within_one(tiny: Synthesizer, renderer: Renderer) -> None:
    assert np.abs(renderer.frames(frames(20, tiny.bundle.target.config.codebooks))).max() <= 1.0
