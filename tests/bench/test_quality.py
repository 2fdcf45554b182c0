"""The sums of `bench quality` by hand; and the whole of it on one sentence (slow)."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from models.evaluation.f0 import Melody
from models.evaluation.report import ClipScore
from models.evaluation.transcribe import Errors
from tests.evaluation.test_report import _score
from tts_spec.bench.quality_report import Measured, print_report, summary
from tts_spec.cli import app
from tts_spec.types import SpeechStats

STATS = SpeechStats(
    audio_s=2.0,
    wall_s=0.5,
    rounds_s=0.4,
    first_audio_ms=10.0,
    tokens=300,
    target_passes=100,
    drafted=400,
    accepted=200,
    tried_by_codebook=(),
    accepted_by_codebook=(),
    drafter="model",
    gamma=8,
    seed=0,
    token_hash="x",
)


def score(errors: int, mos: float, similarity: float | None, seconds: float = 2.0, hz: float = 200.0) -> ClipScore:
    made = _score(Errors(errors, 0, 0, 10), mos, similarity)
    return replace(made, seconds=seconds, melody=Melody(hz, 3.0, 0.5))


def measured(ours: ClipScore | None, voice: str = "heart", same: bool = True, speed: float = 1.0) -> Measured:
    scores = {"ours": ours, "teacher": score(1, 4.5, None), "codec": score(2, 3.0, 0.9)}
    return Measured(0, "A b c.", voice, speed, ("short",), scores, STATS, same)


def test_ours_beside_teacher_and_codec() -> None:
    good, bad = score(1, 4.0, 0.9), score(8, 2.0, 0.7, seconds=4.0, hz=400.0)
    found = summary([measured(good), measured(bad, "emma", speed=0.8)])
    assert (found["wer"], found["wer_teacher"], found["wer_codec"], found["wer_above_teacher"]) == (
        0.45,
        0.1,
        0.2,
        0.35,
    )
    assert (found["distill_mos_below_teacher"], found["p808_below_teacher"], found["similarity"]) == (1.5, 1.5, 0.8)
    assert (found["lost"], found["tau"], found["rtf"]) == (0.5, 3.0, 0.25)
    assert found["duration_ratio_range"] == [1.0, pytest.approx(3.7 / 1.7, abs=1e-4)]
    assert (found["duration_outside"], found["f0_shift_st"]) == (1, 6.0)  # an octave and nothing
    assert found["by"]["voice"]["emma"]["wer"] == 0.8
    assert found["by"]["speed"]["1.0"]["lost"] == 0
    assert found["by"]["kind"]["short"]["n"] == 2
    assert [each["voice"] for each in found["wrong"]] == ["emma"]
    met = {each["figure"]: each["met"] for each in found["targets"]}
    assert met == {
        "wer_above_teacher": False, "distill_mos_below_teacher": False, "p808_below_teacher": False, "similarity": True,
        "lost": False, "rtf": True, "tau": True,
    }  # fmt: skip
    json.dumps(found)


def test_a_clip_that_cannot_be_measured_is_lost_and_not_forgotten() -> None:
    found = summary([measured(score(0, 4.0, 0.9)), measured(None)])
    assert (found["failed"], found["lost"], found["wer"]) == (1, 0.5, 0.0)
    assert found["teacher"]["clips"] == 1  # the same sentences for all
    assert [each["heard"] for each in found["wrong"]] == [None]
    nothing = summary([measured(None)])
    assert (nothing["wer"], nothing["ours"], nothing["targets"][0]["met"]) == (None, None, False)


def test_other_tokens_without_speculation_are_told() -> None:
    out = io.StringIO()
    found = [measured(score(0, 4.0, 0.9)), measured(score(0, 4.0, 0.9), same=False)]
    print_report(found, Console(file=out, width=80))
    assert "NOT the same" in " ".join(out.getvalue().split())
    assert "…" not in out.getvalue()  # the tables fit a terminal
    assert summary(found)["same_tokens"] == 1
    assert len(summary(found)["wrong"]) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--n", "0"], "n is 0"), (["--speeds", "1,9"], "speeds is"), (["--speeds", "x"], "speeds is 'x'")],
)
def test_bad_options_are_named(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(app, ["bench", "quality", *arguments])
    assert says in str(result.exception)


@pytest.mark.slow
def test_one_sentence(tmp_path: Path) -> None:
    arguments = ["bench", "quality", "--n", "1", "--keep", str(tmp_path), "--plot", str(tmp_path / "q.png"), "--json"]
    result = CliRunner().invoke(app, arguments)
    found = json.loads(result.stdout.splitlines()[-1])
    assert (found["n"], found["same_tokens"], found["failed"]) == (1, 1, 0)
    assert found["wer"] <= 0.3
    assert (tmp_path / "q.png").read_bytes().startswith(b"\x89PNG")
    assert len((tmp_path / "scores.jsonl").read_text().splitlines()) == 3
    again = CliRunner().invoke(app, arguments)  # everything is kept
    assert json.loads(again.stdout.splitlines()[-1])["wer"] == found["wer"]
    assert len((tmp_path / "scores.jsonl").read_text().splitlines()) == 3
