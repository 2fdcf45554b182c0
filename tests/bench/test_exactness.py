"""The sweep counts what it is given, and a broken round or a pass that does not round alike is found and classified."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from models.lm_stream import LmStream, Logits, StreamInput
from tests.speculate.test_mutants import MUTANTS, mutant
from tts_spec.bench import exactness
from tts_spec.bench.exactness import SilentStream
from tts_spec.cli import app
from tts_spec.engine.plan import plan
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import SpeakOptions, SpeechError

GAMMAS = (2, 7)
TEMPERATURES = (0.0, 1.0)
SETTINGS = 5 * len(GAMMAS) * len(TEMPERATURES)  # drafters model, early-exit, medusa, lookahead and auto


@pytest.fixture(autouse=True)
def small_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactness, "GAMMAS", GAMMAS)
    monkeypatch.setattr(exactness, "TEMPERATURES", TEMPERATURES)
    monkeypatch.setattr(exactness, "held_out_sentences", lambda: ("Hello.", "A day.", "Go on."))


def sweep(synthesizer: Synthesizer, n: int = 1, dtype: str = "float32", seconds: float | None = None) -> dict[str, Any]:
    return exactness.run({dtype: synthesizer}, n, seconds, Console(quiet=True))


def perturb_wide_passes(monkeypatch: pytest.MonkeyPatch, size: float) -> None:
    """Passes of several rows now round unlike those of one: their logits are up to ``size`` off."""
    forward = LmStream.forward

    def off(self: LmStream, inputs: Sequence[StreamInput], start: int, *rest: Any, **named: Any) -> Logits:
        logits = forward(self, inputs, start, *rest, **named)
        if len(inputs) > 1:
            logits += np.random.default_rng(start).uniform(-size, size, logits.shape).astype(np.float32)
        return logits

    monkeypatch.setattr(LmStream, "forward", off)


def test_the_command_compares_every_setting(tiny_bundle: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "exactness", "--n", "1", "--bundle", str(tiny_bundle), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout.splitlines()[-1])
    assert report["equal"] == report["compared"] == 2 * SETTINGS
    assert (report["unequal"], report["complete"], report["mismatches"]) == (0, True, [])
    assert {cell["drafter"] for cell in report["cells"]} == {"model", "early-exit", "medusa", "lookahead", "auto"}
    assert all(cell["equal"] == 1 for cell in report["cells"])
    assert {(cell["dtype"], cell["gamma"], cell["temperature"]) for cell in report["cells"]} == {
        (dtype, gamma, temperature)
        for dtype in ("float32", "bfloat16")
        for gamma in GAMMAS
        for temperature in TEMPERATURES
    }
    assert f"equal {2 * SETTINGS}, unequal 0" in result.stderr


def test_it_stops_when_the_time_is_over(tiny: Synthesizer) -> None:
    report = sweep(tiny, n=3, seconds=1e-6)
    assert (report["compared"], report["complete"], report["ok"]) == (1, False, True)


def test_a_silent_stream_says_what_an_audible_one_says(tiny: Synthesizer) -> None:
    options = SpeakOptions(seed=5)
    silent = SilentStream(tiny.bundle, tiny.frontend, plan(tiny.bundle.manifest, options)).run("Hello there.")
    audible = tiny.speak("Hello there.", options)
    assert silent.stats().token_hash == audible.stats.token_hash
    assert len(silent.decisions) == audible.stats.tokens


def test_a_broken_round_fails(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = mutant(*MUTANTS["commits the rejected draft"])
    monkeypatch.setattr("tts_spec.engine.stream.speculative_round", broken)
    result = CliRunner().invoke(app, ["bench", "exactness", "--n", "1", "--bundle", str(tiny_bundle), "--json"])
    assert result.exit_code == 1
    report = json.loads(result.stdout.splitlines()[-1])
    assert report["unequal"] > SETTINGS
    assert not any(each["allowed"] for each in report["mismatches"])
    assert "WRONG: float32 model gamma 7" in " ".join(result.stderr.split())


def test_rounding_is_allowed_in_bfloat16_only(tiny: Synthesizer, monkeypatch: pytest.MonkeyPatch) -> None:
    perturb_wide_passes(monkeypatch, 0.1)
    strict = sweep(tiny, dtype="bfloat16")
    assert strict["unequal"] > 0
    assert not strict["ok"]  # the arithmetic is float32, whose rounding is far smaller
    for each in strict["mismatches"]:
        assert 0 <= each["gap"] < 2 * 0.1 + 1e-6  # no larger than what was done to two scores
        assert each["rounding"] < 1e-4
    monkeypatch.setattr(exactness, "ROUNDINGS", 2**20)  # as if it were coarse
    coarse = sweep(tiny, dtype="bfloat16")
    assert coarse["unequal"] == strict["unequal"]
    assert coarse["ok"]
    assert not sweep(tiny, dtype="float32")["ok"]


@pytest.mark.parametrize(("n", "seconds", "field"), [(0, None, "n"), (4, None, "n"), (1, 0.0, "seconds")])
def test_bad_options_are_named(tiny: Synthesizer, n: int, seconds: float | None, field: str) -> None:
    with pytest.raises(SpeechError) as caught:
        sweep(tiny, n, seconds=seconds)
    assert caught.value.field == field
