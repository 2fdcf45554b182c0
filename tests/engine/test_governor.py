"""What the engine learns about itself, and what it makes of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tts_spec.engine.governor import Governor
from tts_spec.engine.plan import plan
from tts_spec.engine.together import PassRecord
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import SpeakOptions


def took_part(drafter: str, gamma: int, accepted: int) -> Any:
    """A stream whose round had ``gamma`` drafts."""
    done = SimpleNamespace(drafted=gamma, longest=gamma, accepted=accepted, decisions=[0] * (accepted + 1))
    return SimpleNamespace(
        take_round=lambda: done,
        take_capped=lambda: 1,
        plan=SimpleNamespace(mode="coupled"),
        drafter=drafter,
        gamma=gamma,
    )


def taught(tiny: Synthesizer, drafter: str, chance: int, rest_s: float = 0.0005) -> Governor:
    """An engine whose target pass takes 1 ms and 0.2 ms a row, whose drafts are right ``chance`` times of 3; half its rounds have some."""
    governor = Governor(replace(tiny.bundle.manifest, default_drafter=drafter), 40.0)
    for n in range(600):
        sessions, gamma = n % 8 + 1, n // 8 % 2 * 3
        rows = sessions * (gamma + 1)
        governor.observe_pass(PassRecord("target", sessions, rows, 0.001 + 0.0002 * rows))
        streams = [took_part(drafter, gamma, min(chance, gamma)) for _ in range(sessions)]
        tokens = sessions * (min(chance, gamma) + 1)
        governor.observe_round(streams, 0.001 + 0.0002 * rows + rest_s * sessions, tokens / 175)
    return governor


@pytest.mark.parametrize("drafter", ["none", "model", "early-exit", "medusa", "lookahead"])
def test_the_load_is_what_rounds_cost(tiny: Synthesizer, drafter: str) -> None:
    governor = taught(tiny, drafter, 0)
    assert (
        governor.metrics()["capped_total"] == governor.metrics()["rounds_total"]
    )  # each of those streams had one in every round
    # 175 rounds a second of plain decoding: 1 ms, then 0.2 ms and 0.5 ms of the rest a session; the prior is still felt a little.
    for sessions in (1, 4, 8):
        expected = 175 * (0.001 + (0.0002 + 0.0005) * sessions)
        assert governor.load(sessions) == pytest.approx(expected, rel=0.15)
    assert governor.load(0) == 0
    free = Governor(replace(tiny.bundle.manifest, default_drafter=drafter), 40.0)
    for _ in range(2000):
        free.observe_pass(PassRecord("target", 4, 4, 0.0004))  # nothing but rows costs
    assert free.load(0) == 0


def test_good_drafts_lower_the_load_and_who_names_a_drafter_gets_it(tiny: Synthesizer) -> None:
    good, bad = taught(tiny, "lookahead", 3), taught(tiny, "lookahead", 0)
    assert good.load(4) < 0.7 * bad.load(4)
    manifest = replace(tiny.bundle.manifest, default_drafter="lookahead")
    assert good.choose(plan(manifest, SpeakOptions()), 1).drafter == "lookahead"
    assert good.choose(plan(manifest, SpeakOptions()), 1).gamma > 0
    for governor in (good, bad):
        named = plan(manifest, SpeakOptions(drafter="model", gamma=5))
        assert governor.choose(named, 4) == ("model", 5)
        assert governor.choose(plan(manifest, SpeakOptions(drafter="none")), 4) == ("none", 0)
        assert governor.choose(plan(manifest, SpeakOptions(gamma=2)), 1).gamma <= 2


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
    for _ in range(400):
        governor.observe_pass(PassRecord("target", 1, 4, 0.0013))
        governor.observe_pass(PassRecord("target", 1, 1, 0.001))
        governor.observe_pass(PassRecord("model", 1, 60, 0.00012 + 60 * 0.00004))
        governor.observe_pass(PassRecord("model", 1, 1, 0.00016))
        governor.observe_round([took_part("model", 3, 2)], 0.0025, 3 / 175)
    chosen = governor.choose(plan(tiny.bundle.manifest, SpeakOptions()), 1)
    assert chosen.drafter == "model"
    assert chosen.gamma >= 2


def test_work_beside_the_passes_counts_by_drafts_and_the_codec_by_audio(tiny: Synthesizer) -> None:
    def spoken(step_s: float, codec_s: float) -> Governor:
        governor = Governor(tiny.bundle.manifest, 40.0)
        for n in range(400):
            drafts = n % 4
            governor.observe_pass(PassRecord("target", 1, 1 + drafts, 0.001 + 0.0001 * drafts))
            governor.observe_pass(PassRecord("model", 1, 1, 0.0001))
            governor.observe_pass(PassRecord("codec", 1, 8, codec_s))
            stream = took_part("model", drafts, drafts)
            passes_s = 0.0011 + 0.0001 * drafts + codec_s
            governor.observe_round([stream], passes_s + 0.0001 + step_s * drafts, (drafts + 1) / 175)
        return governor

    made = plan(tiny.bundle.manifest, SpeakOptions())
    cheap, dear, slow = spoken(0.0001, 0.0), spoken(0.005, 0.0), spoken(0.0001, 0.02)
    assert cheap.choose(made, 1).gamma > dear.choose(made, 1).gamma
    assert slow.choose(made, 1) == cheap.choose(made, 1)  # the codec's work is the same with and without
    assert slow.load(1) > cheap.load(1) + 0.5
