"""How long a phoneme may last: by what follows it, in a stream whose model never moves on, and as the corpus has it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from models.training.dataset import Row
from models.training.lengths import lengths
from models.training.safety import CountedStream
from tts_spec.engine.lengths import MOST, Place, class_of, most_frames
from tts_spec.synthesizer import Synthesizer
from tts_spec.text.symbols import PAD, START, STOP, SYMBOLS, TABLE_SIZE, symbol_ids
from tts_spec.types import SpeakOptions

S, N, SPACE, COMMA, STRESS = symbol_ids("sn ,ˈ")


def test_every_symbol_has_a_class() -> None:
    assert {class_of(symbol) for symbol in SYMBOLS} == set(MOST)
    assert [class_of(symbol) for symbol in "Aɹtʃˈː ,.?"] == [
        "vowel", "sonorant", "stop", "fricative", "stress", "length", "space", "mark", "mark", "mark",
    ]  # fmt: skip


def test_what_follows_and_the_speed_tell_how_long() -> None:
    inside = most_frames(S, N, 1.0)
    assert inside == most_frames(S, STRESS, 1.0) == MOST["fricative"][0]
    assert inside < most_frames(S, SPACE, 1.0) < most_frames(S, COMMA, 1.0)
    assert most_frames(S, PAD, 1.0) == most_frames(S, STOP, 1.0) == most_frames(S, COMMA, 1.0)
    assert most_frames(S, N, 0.8) == inside / 0.8
    assert most_frames(S, N, 1.3) == inside
    for pad in (PAD, START, STOP):
        with pytest.raises(ValueError, match=f"symbol is {pad}"):
            most_frames(pad, S, 1.0)


def test_the_table_is_made_of_lengths_at_speed_1() -> None:
    rows = [
        Row(n, "a", speed, "", "ˈAs, ts", (9, 3, 4, round(20 / speed), 2, 1, 5, 6, 9), 0, 0)
        for n, speed in enumerate([1.0, 2.0])
    ]
    found = lengths(rows)
    assert found["stress", Place.INSIDE] == found["stress", Place.PHRASE] == (3, 9)  # 3 and 6
    assert found["vowel", Place.INSIDE] == (4, 12)
    assert found["fricative", Place.PHRASE] == (6, 30)  # 20 twice, 6 and 12 at the end
    assert found["stop", Place.INSIDE] == (5, 15)
    assert ("vowel", Place.WORD) not in found


def stream(tiny: Synthesizer, drafter: Literal["none", "model", "early-exit", "medusa", "lookahead"]) -> CountedStream:
    """Of random weights, which hardly ever choose to move on, in a bundle that would let them stay for two seconds."""
    manifest = replace(tiny.bundle.manifest, caps=[80] * TABLE_SIZE)
    made: Any = SimpleNamespace(bundle=replace(tiny.bundle, manifest=manifest), frontend=tiny.frontend)
    spoken = CountedStream(made, SpeakOptions(seed=4, drafter=drafter, gamma=0 if drafter == "none" else 5, speed=0.9))
    spoken.run("Stay here, now.")
    return spoken


def test_nothing_hangs_and_what_would_is_counted_alike_by_every_drafter(tiny: Synthesizer) -> None:
    plain = stream(tiny, "none")
    sounds = [*zip(plain.symbols, plain.symbols[1:], plain.frames, strict=False)][1:]
    assert all(frames <= most_frames(symbol, after, 0.9) for symbol, after, frames in sounds)
    reached = sum(frames == cap for frames, cap in zip(plain.frames, plain._script.caps, strict=True))
    assert plain.stats().capped == plain.take_capped() == reached > len(sounds) / 2
    assert plain.take_capped() == 0
    for drafter in ("model", "early-exit", "medusa", "lookahead"):
        drafted = stream(tiny, drafter)  # type: ignore[arg-type]
        assert drafted.stats().token_hash == plain.stats().token_hash, drafter
        assert drafted.stats().capped == reached
