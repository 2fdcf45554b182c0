"""Steps of many streams at once: each does what it does alone, whoever is beside it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from models.lm_stream import LmBatch
from tts_spec.engine.plan import plan
from tts_spec.engine.stream import SpeechStream
from tts_spec.engine.together import PassRecord, SharedNetworks, together
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import Chunk, SpeakOptions

TEXTS = ("Hello there.", "How are you? Fine!", "No.", 'One. <break time="200ms"/> Two.', "It costs $5.")


def open_stream(tiny: Synthesizer, networks: SharedNetworks | None, number: int) -> SpeechStream:
    options = SpeakOptions(
        seed=number,
        voice=("one", "two")[number % 2],
        drafter="none" if number % 5 == 4 else "model",
        gamma=(1, 4, 7)[number % 3],
        temperature=(0.8, 0.0)[number % 4 == 3],
        mode="ratio" if number % 7 == 6 else "coupled",
    )
    stream = SpeechStream(tiny.bundle, tiny.frontend, plan(tiny.bundle.manifest, options), networks)
    stream.text(TEXTS[number % len(TEXTS)])
    stream.end()
    return stream


def alone(tiny: Synthesizer, number: int) -> list[Chunk]:
    stream = open_stream(tiny, None, number)
    chunks = []
    while not stream.finished:
        chunk = stream.step()
        if chunk is not None:
            chunks.append(chunk)
    return chunks


@pytest.mark.parametrize("schedule", range(3))
def test_any_schedule_gives_every_stream_what_it_gets_alone(tiny: Synthesizer, schedule: int) -> None:
    rng = random.Random(schedule)
    networks = SharedNetworks(tiny.bundle, slots=5)
    numbers = iter(range(schedule * 4, schedule * 4 + 7))
    live: dict[int, SpeechStream] = {}
    made: dict[int, list[Chunk]] = {}
    records: list[PassRecord] = []
    more = True
    while live or more:
        if more and len(live) < 5 and (not live or rng.random() < 0.1):
            number = next(numbers, None)
            more = number is not None
            if number is not None:
                live[number], made[number] = open_stream(tiny, networks, number), []
        chosen = [number for number in live if rng.random() < 0.8]
        for number, outcome in zip(chosen, together([live[n].step for n in chosen], records.append), strict=True):
            assert outcome.error is None
            if outcome.value is not None:
                made[number].append(outcome.value)
            if live[number].finished:
                live.pop(number).close()
    assert {record.network for record in records} == {"target", "model", "codec"}
    assert max(record.streams for record in records if record.network == "target") > 2
    assert max(record.streams for record in records if record.network == "codec") > 1
    for number, chunks in made.items():
        expected = alone(tiny, number)
        got, want = chunks[-1].stats, expected[-1].stats
        assert got is not None
        assert want is not None
        assert (got.token_hash, got.target_passes) == (want.token_hash, want.target_passes)
        pcm = np.concatenate([chunk.pcm for chunk in chunks])
        np.testing.assert_allclose(pcm, np.concatenate([chunk.pcm for chunk in expected]), atol=1e-4)
        words = [word for chunk in chunks for word in chunk.words]
        assert words == [word for chunk in expected for word in chunk.words]


def test_a_step_that_raises_ends_alone(tiny: Synthesizer) -> None:
    networks = SharedNetworks(tiny.bundle, slots=2)
    stream = open_stream(tiny, networks, 0)

    def broken() -> None:
        raise RuntimeError("no")

    first, second = together([broken, stream.step])
    assert isinstance(first.error, RuntimeError)
    assert second.error is None
    assert stream.stats().tokens > 0


def test_a_failing_pass_fails_the_call_and_leaves_no_step_hanging(
    tiny: Synthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks = SharedNetworks(tiny.bundle, slots=2)
    ended = []

    def step() -> None:
        try:
            open_stream(tiny, networks, len(ended)).step()
        finally:
            ended.append(True)

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(LmBatch, "_pass", fail)
    with pytest.raises(MemoryError):
        together([step, step])
    assert ended == [True, True]


def test_nothing_to_do() -> None:
    assert together([]) == []
