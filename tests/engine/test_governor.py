"""What the engine learns about itself, and what it makes of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tts_spec.engine.governor import Governor
from tts_spec.engine.plan import plan
from tts_spec.engine.together import PassRecord
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import SpeakOptions


def taught(tiny: Synthesizer, drafter: str, chance: int, rest_s: float = 0.0005) -> Governor:
    """An engine whose target pass takes 1 ms and 0.2 ms a row, whose drafts are right ``chance`` times of 3."""
    governor = Governor(replace(tiny.bundle.manifest, default_drafter=drafter), 40.0)
    for n in range(600):
        sessions, gamma = n % 8 + 1, 3
        rows = sessions * (gamma + 1)
        governor.observe_pass(PassRecord("target", sessions, rows, 0.001 + 0.0002 * rows))
        done = SimpleNamespace(drafted=gamma, longest=gamma, accepted=chance, decisions=[0] * (chance + 1))
        streams = [
            cast(
                Any,
                SimpleNamespace(take_round=lambda done=done: done, plan=SimpleNamespace(drafter=drafter), gamma=gamma),
            )
            for _ in range(sessions)
        ]
        tokens = sessions * (chance + 1)
        governor.observe_round(streams, 0.001 + 0.0002 * rows + rest_s * sessions, tokens / 175)
    return governor


@pytest.mark.parametrize("drafter", ["none", "model", "medusa", "lookahead"])
def test_the_load_is_what_rounds_cost(tiny: Synthesizer, drafter: str) -> None:
    governor = taught(tiny, drafter, 0)
    # 175 rounds a second of plain decoding: 1 ms, then 0.2 ms and 0.5 ms of the rest a session; the prior is still felt a little.
    for sessions in (1, 4, 8):
        expected = 175 * (0.001 + (0.0002 + 0.0005) * sessions)
        assert governor.load(sessions) == pytest.approx(expected, rel=0.15)
    assert governor.load(0) == 0


def test_good_drafts_lower_the_load_and_gamma_falls_with_the_batch(tiny: Synthesizer) -> None:
    good, bad = taught(tiny, "lookahead", 3), taught(tiny, "lookahead", 0)
    assert good.load(4) < 0.7 * bad.load(4)
    options = SpeakOptions()
    manifest = replace(tiny.bundle.manifest, default_drafter="lookahead")
    assert bad.gamma(options, plan(manifest, options), 4) == 0
    assert good.gamma(options, plan(manifest, options), 1) > 0
    named = SpeakOptions(drafter="model", gamma=5)
    assert bad.gamma(named, plan(manifest, named), 4) == 5


def test_first_audio_is_learnt_by_how_many_wait(tiny: Synthesizer) -> None:
    governor = Governor(tiny.bundle.manifest, 40.0)
    for n in range(300):
        governor.observe_first_audio(n % 5 + 1, 0.03 + 0.01 * (n % 5 + 1))
    assert governor.first_audio_s(1) == pytest.approx(0.04, rel=0.1)
    assert governor.first_audio_s(8) == pytest.approx(0.11, rel=0.1)
    for _ in range(300):
        governor.observe_first_audio(1, 60.0)  # something else than the engine's speed
    assert governor.first_audio_s(1) <= 0.51


def test_what_a_drafter_missed_does_not_count_against_its_drafts(tiny: Synthesizer) -> None:
    """Asked only now and then, it first takes in all it was not asked for: a long pass, before short ones that pay."""
    governor = Governor(tiny.bundle.manifest, 40.0)
    options, manifest = SpeakOptions(), tiny.bundle.manifest
    for _ in range(200):
        governor.observe_pass(PassRecord("target", 1, 4, 0.0013))
        governor.observe_pass(PassRecord("target", 1, 1, 0.001))
        governor.observe_pass(PassRecord("model", 1, 60, 0.00012 + 60 * 0.00004))
        governor.observe_pass(PassRecord("model", 1, 1, 0.00016))
        done = SimpleNamespace(drafted=3, longest=3, accepted=2, decisions=[0] * 3)
        stream = SimpleNamespace(take_round=lambda done=done: done, plan=SimpleNamespace(drafter="model"), gamma=3)
        governor.observe_round([cast(Any, stream)], 0.0025, 3 / 175)
    governor.observe_round([], 0.001, 0.0)  # not the round in which it looks anyway
    assert governor.gamma(options, plan(manifest, options), 1) >= 2
