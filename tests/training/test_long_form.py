"""The long stream: its text, its measures on sounds whose answer is known, and a short real run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from models.evaluation.seams import CLICK, seam_contrasts
from models.evaluation.sentences import held_out_sentences
from models.training.long_form import CHARS_PER_S, FRAME_CHARS, WINDOW_S, long_text, pace, speak
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import SpeakOptions, SpeechError, Word

RATE = 24_000


def test_the_text_fills_the_minutes_and_ends_as_it_began() -> None:
    text = long_text(5.0, held_out_sentences())
    assert len(text) == pytest.approx(5 * 60 * CHARS_PER_S, rel=0.15)
    assert text[:FRAME_CHARS] in text[-2 * FRAME_CHARS :]
    assert len(long_text(60.0, held_out_sentences()[:20])) > 45_000  # more than there are sentences


def test_a_click_at_a_seam_is_found_and_speech_is_not_one() -> None:
    time = np.arange(RATE) / RATE
    buzz = sum(0.05 * np.sin(2 * np.pi * 150 * k * time) for k in range(1, 6)).astype(np.float32)  # type: ignore[union-attr]
    seams = list(range(600, RATE, 600))
    assert max(seam_contrasts(buzz, RATE, seams)) <= 1.0
    clicked = buzz.copy()
    clicked[1200:] += 0.5
    contrasts = seam_contrasts(clicked, RATE, seams)
    assert contrasts[1] > CLICK
    assert max(contrasts[:1] + contrasts[2:]) <= 1.0
    quiet = np.zeros(RATE, np.float32)
    quiet[1200:] = 0.001
    assert max(seam_contrasts(quiet, RATE, seams)) == 0
    with pytest.raises(SpeechError, match="seams has 0"):
        seam_contrasts(buzz, RATE, [0])


def test_pace_counts_the_words_of_a_window() -> None:
    words = [
        Word("abcde", 0, 5, 1.0, 1.5),
        Word("fghij", 6, 11, 2.0, 2.5),
        Word("later", 12, 17, WINDOW_S + 1, WINDOW_S + 2),
    ]
    assert pace(words, 0.0) == 10.0
    assert pace(words, 5.0) == 5.0
    assert pace(words, 100.0) == 0.0


def test_one_stream_in_pieces(tiny: Synthesizer, tmp_path: Path) -> None:
    text = "Hello there, my friend. How are you today? Fine."
    spoken = speak(tiny, text, SpeakOptions(seed=3), tmp_path / "a.wav")
    whole = tiny.speak(text, seed=3)
    assert len(spoken.pcm) == len(whole.pcm)
    assert [word.text for word in spoken.words] == [word.text for word in whole.words]
    assert spoken.seams
    assert all(seam % 600 == 0 for seam in spoken.seams)
    assert len(spoken.memory_mb) == 2
