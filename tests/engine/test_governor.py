"""What the engine learns about itself, and what it makes of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tts_spec.engine.governor import LOOK_EVERY, Governor
from tts_spec.engine.plan import plan
from tts_spec.engine.together import PassRecord
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import SpeakOptions


def taught(tiny: Synthesizer, drafter: str, chance: int, rest_s: float = 0.0005) -> Governor:
    """An engine whose target pass takes 1 ms and 0.2 ms a row, whose drafts are right ``chance`` times of 3; half its rounds have some."""
    governor = Governor(replace(tiny.bundle.manifest, default_drafter=drafter), 40.0)
    for n in range(600):
        sessions, gamma = n % 8 + 1, n // 8 % 2 * 3
        rows = sessions * (gamma + 1)
        governor.observe_pass(PassRecord("target", sessions, rows, 0.001 + 0.0002 * rows))
        done = SimpleNamespace(
            drafted=gamma, longest=gamma, accepted=min(chance, gamma), decisions=[0] * (min(chance, gamma) + 1)
        )
        streams = [
            cast(
                Any,
                SimpleNamespace(take_round=lambda done=done: done, plan=SimpleNamespace(drafter=drafter), gamma=gamma),
            )
            for _ in range(sessions)
        ]
        tokens = sessions * (min(chance, gamma) + 1)
        governor.observe_round(streams, 0.001 + 0.0002 * rows + rest_s * sessions, tokens / 175)
    return governor


@pytest.mark.parametrize("drafter", ["none", "model", "early-exit", "medusa", "lookahead"])
def test_the_load_is_what_rounds_cost(tiny: Synthesizer, drafter: str) -> None:
    governor = taught(tiny, drafter, 0)
    # 175 rounds a second of plain decoding: 1 ms, then 0.2 ms and 0.5 ms of the rest a session; the prior is still felt a little.
    for sessions in (1, 4, 8):
        expected = 175 * (0.001 + (0.0002 + 0.0005) * sessions)
        assert governor.load(sessions) == pytest.approx(expected, rel=0.15)
    assert governor.load(0) == 0
    free = Governor(replace(tiny.bundle.manifest, default_drafter=drafter), 40.0)
    for _ in range(2000):
        free.observe_pass(PassRecord("target", 4, 4, 0.0004))  # nothing but rows costs
    assert free.load(0) == 0


def test_good_drafts_lower_the_load_and_gamma_falls_with_the_batch(tiny: Synthesizer) -> None:
    good, bad = taught(tiny, "lookahead", 3), taught(tiny, "lookahead", 0)
    assert good.load(4) < 0.7 * bad.load(4)
    options = SpeakOptions()
    manifest = replace(tiny.bundle.manifest, default_drafter="lookahead")
    for governor in (good, bad):
        governor.gamma(options, plan(manifest, options), 4)  # the one that looks anyway
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
    governor.gamma(options, plan(manifest, options), 1)  # the one that looks anyway
    assert governor.gamma(options, plan(manifest, options), 1) >= 2


def test_one_session_looks_now_and_then_whether_drafts_have_become_good(tiny: Synthesizer) -> None:
    """Not all at once: for each a drafter that was not asked first takes in what it missed, and the round becomes long."""
    governor = taught(tiny, "lookahead", 0)
    manifest = replace(tiny.bundle.manifest, default_drafter="lookahead")
    options = SpeakOptions()
    rounds = []
    for _ in range(4 * LOOK_EVERY):
        rounds.append([governor.gamma(options, plan(manifest, options), 6) for _ in range(6)])
        governor.observe_round([], 0.001, 0.0)
    looked = [gammas for gammas in rounds if any(gammas)]
    assert len(looked) == 4
    assert all(gammas.count(0) == 5 for gammas in looked)


def test_work_beside_the_passes_counts_by_drafts_and_the_codec_by_audio(tiny: Synthesizer) -> None:
    def spoken(step_s: float, codec_s: float) -> Governor:
        governor = Governor(tiny.bundle.manifest, 40.0)
        for n in range(400):
            drafts = n % 4
            governor.observe_pass(PassRecord("target", 1, 1 + drafts, 0.001 + 0.0001 * drafts))
            governor.observe_pass(PassRecord("model", 1, 1, 0.0001))
            governor.observe_pass(PassRecord("codec", 1, 8, codec_s))
            done = SimpleNamespace(drafted=drafts, longest=drafts, accepted=drafts, decisions=[0] * (drafts + 1))
            plans = SimpleNamespace(drafter="model")
            stream = cast(Any, SimpleNamespace(take_round=lambda done=done: done, plan=plans, gamma=drafts))
            passes_s = 0.0011 + 0.0001 * drafts + codec_s
            governor.observe_round([stream], passes_s + 0.0001 + step_s * drafts, (drafts + 1) / 175)
        return governor

    options = SpeakOptions()
    made = plan(tiny.bundle.manifest, options)
    cheap, dear, slow = spoken(0.0001, 0.0), spoken(0.005, 0.0), spoken(0.0001, 0.02)
    for governor in (cheap, dear, slow):
        governor.gamma(options, made, 1)  # the one that looks anyway
    assert cheap.gamma(options, made, 1) > 0
    assert dear.gamma(options, made, 1) == 0
    assert slow.gamma(options, made, 1) == cheap.gamma(
        options, made, 1
    )  # the codec's work is the same with and without
    assert slow.load(1) > cheap.load(1) + 0.5


def test_slow_first_passes_do_not_stop_an_engine_from_drafting(tiny: Synthesizer) -> None:
    """What it took them for, at many times a draft's cost, kept the whole gain idle: it looks again only every ``LOOK_EVERY`` rounds."""
    manifest, options = replace(tiny.bundle.manifest, default_drafter="model"), SpeakOptions()
    governor, chosen = Governor(manifest, 40.0), plan(manifest, options)
    for n in range(LOOK_EVERY - 2):
        gamma = governor.gamma(options, chosen, 1)
        drafts = min(gamma, 3)
        slow = 0.005 if n < 4 else 0.0  # kernels are loaded, caches are cold
        for _ in range(drafts):
            governor.observe_pass(PassRecord("model", 1, 1, 0.00009 + slow))
        target_s = 0.0005 + 0.0001 * drafts + slow
        governor.observe_pass(PassRecord("target", 1, drafts + 1, target_s))
        done = SimpleNamespace(
            drafted=drafts, longest=drafts, accepted=min(drafts, 2), decisions=[0] * (min(drafts, 2) + 1)
        )
        stream = SimpleNamespace(take_round=lambda done=done: done, plan=chosen, gamma=gamma)
        seconds = target_s + drafts * (0.00009 + slow) + 0.0001 + 0.00003 * drafts
        governor.observe_round([cast(Any, stream)], seconds, 1 / 175)
    assert governor.gamma(options, chosen, 1) > 0
