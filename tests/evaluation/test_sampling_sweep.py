"""The sweep: every setting says every sentence, and its counts are those of the speech."""

from __future__ import annotations

import numpy as np
import pytest

from models.evaluation import sampling_sweep
from models.evaluation.sampling_sweep import Setting, Tally, sweep
from models.evaluation.sentences import held_out_sentences
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import Pcm


@pytest.fixture(autouse=True)
def heard(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Whisper and DistillMOS stand in: the first writes the second sentence, the other counts samples."""
    lengths: list[int] = []

    def transcribe(pcm: Pcm, rate: int) -> str:
        lengths.append(len(pcm))
        return held_out_sentences()[1]

    monkeypatch.setattr(sampling_sweep, "transcribe", transcribe)
    monkeypatch.setattr(sampling_sweep, "distill_mos", lambda pcm, rate: 3.0)
    return lengths


def test_every_setting_says_every_sentence(tiny: Synthesizer, heard: list[int]) -> None:
    settings = [Setting(0.0, 1.0), Setting(1.0, 0.9)]
    tallies = sweep(tiny, settings, 2)
    assert list(tallies) == settings
    greedy, varied = (tallies[setting] for setting in settings)
    assert len(heard) == 4
    assert (heard[0] + heard[2]) / 24_000 == pytest.approx(greedy.audio_s)
    assert greedy.lost == varied.lost == [True, False]
    assert greedy.as_dict()["distill_mos"] == 3.0
    assert 0 < greedy.words.rate < 2
    assert greedy.tokens != varied.tokens
    whole = [tiny.speak(held_out_sentences()[i], voice=("one", "two")[i], seed=i, temperature=0.0) for i in range(2)]
    assert greedy.tokens == sum(speech.stats.tokens for speech in whole)


def test_what_cannot_be_measured_is_lost(tiny: Synthesizer, monkeypatch: pytest.MonkeyPatch) -> None:
    from models.evaluation.transcribe import transcribe

    monkeypatch.setattr(sampling_sweep, "transcribe", transcribe)
    speech = tiny.speak("...")
    assert not len(speech.pcm)
    tally = Tally()
    tally.add("Three words here.", speech)
    assert (tally.words.deletions, tally.lost, tally.mos) == (3, [True], [])
    assert tally.as_dict()["distill_mos"] is None
    assert np.isfinite(tally.as_dict()["wer"])  # type: ignore[arg-type]
