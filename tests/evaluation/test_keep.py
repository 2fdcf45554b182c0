"""What is kept is not made again, and a run that was stopped leaves nothing broken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from models.bundle import BundleError
from models.evaluation.keep import Kept
from models.evaluation.report import ClipScore
from models.evaluation.transcribe import Errors
from tests.evaluation.test_report import _score
from tts_spec.types import Pcm


def never() -> ClipScore:
    raise AssertionError("it is kept")


def test_scores_and_clips_are_made_once(tmp_path: Path) -> None:
    score = _score(Errors(1, 0, 0, 5), 3.5, 0.8)
    pcm = np.sin(np.arange(2400) * 0.1).astype(np.float32)
    kept = Kept(tmp_path / "new")
    assert kept.score("a", lambda: score) == kept.score("a", never) == score
    kept.clip("a", lambda: (pcm, 24_000))
    again = Kept(tmp_path / "new")
    assert again.score("a", never) == score

    def made() -> tuple[Pcm, int]:
        raise AssertionError("it is kept")

    assert np.abs(again.clip("a", made) - pcm).max() < 1e-6
    other = _score(Errors(), 1.0, None)
    assert again.score("b", lambda: other) == other


def test_half_a_line_is_dropped(tmp_path: Path) -> None:
    score = _score(Errors(1, 0, 0, 5), 3.5, None)
    Kept(tmp_path).score("a", lambda: score)
    with (tmp_path / "scores.jsonl").open("a") as file:
        file.write('{"key": "b", "sco')
    kept = Kept(tmp_path)
    assert kept.score("a", never) == score
    kept.score("b", lambda: score)
    assert Kept(tmp_path).score("b", never) == score


def test_scores_of_another_form_are_refused(tmp_path: Path) -> None:
    (tmp_path / "scores.jsonl").write_text('{"key": "a", "score": {"heard": "x"}}\n')
    with pytest.raises(BundleError, match="unknown or missing keys"):
        Kept(tmp_path)


def test_nothing_is_kept_without_a_folder() -> None:
    kept = Kept(None)
    assert len(kept.clip("a", lambda: (np.zeros(5, np.float32), 24_000))) == 5
