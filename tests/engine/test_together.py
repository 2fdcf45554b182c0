"""Steps of many streams at once: each does what it does alone, whoever is beside it."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import replace

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
        drafter=("model", "medusa", "early-exit", "early-exit", "none")[number % 5],
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


@pytest.fixture(scope="module")
def by_itself(tiny: Synthesizer) -> Callable[[int], list[Chunk]]:
    return functools.cache(lambda number: alone(tiny, number))


@pytest.mark.parametrize("schedule", range(50))
def test_any_schedule_gives_every_stream_what_it_gets_alone(
    tiny: Synthesizer, by_itself: Callable[[int], list[Chunk]], schedule: int
) -> None:
    """Streams join, are left out of rounds, give their slot to another and come back in a third, and leave in mid-sentence."""
    rng = random.Random(schedule)
    slots = 3
    networks = SharedNetworks(tiny.bundle, slots)
    numbers = rng.sample(range(14), 5)
    waiting = list(numbers)
    live: dict[int, SpeechStream] = {}
    parked: dict[int, SpeechStream] = {}
    made: dict[int, list[Chunk]] = {number: [] for number in numbers}
    quitter = numbers[-1]
    records: list[PassRecord] = []
    while live or parked or waiting:
        if len(live) == slots and (parked or waiting) and rng.random() < 0.1:  # preempted
            number = rng.choice(list(live))
            parked[number] = live.pop(number)
            parked[number].park()
        if len(live) < slots and (not live or rng.random() < 0.2):
            if parked and (not waiting or rng.random() < 0.5):
                number = rng.choice(list(parked))
                live[number] = parked.pop(number)
                live[number].unpark()
            elif waiting:
                number = waiting.pop()
                live[number] = open_stream(tiny, networks, number)
        chosen = [number for number in live if rng.random() < 0.8]
        for number, outcome in zip(chosen, together([live[n].step for n in chosen], records.append), strict=True):
            assert outcome.error is None
            if outcome.value is not None:
                made[number].append(outcome.value)
            if live[number].finished or (number == quitter and len(made[number]) > 2):
                live.pop(number).close()
    for number in numbers:
        expected = by_itself(number)
        words = [word for chunk in made[number] for word in chunk.words]
        pcm = np.concatenate([chunk.pcm for chunk in made[number]])
        whole = np.concatenate([chunk.pcm for chunk in expected])
        assert np.array_equal(pcm, whole[: len(pcm)])
        got, want = made[number][-1].stats, expected[-1].stats
        assert want is not None
        if got is not None:
            assert (got.token_hash, got.target_passes) == (want.token_hash, want.target_passes)
            assert words == [word for chunk in expected for word in chunk.words]
        else:
            assert number == quitter
    assert max(record.streams for record in records if record.network == "target") > 1
    assert [networks.target.open([1.0, 0.0], 1.0).slot for _ in range(slots)] == list(range(slots))  # all came back


@pytest.mark.parametrize("schedule", range(12))
def test_a_policy_at_random_changes_no_token(tiny: Synthesizer, schedule: int) -> None:
    """Drafter and gamma change from round to round, also while a stream is parked, with others in the batch that change theirs."""
    rng = random.Random(schedule)
    networks = SharedNetworks(tiny.bundle, slots=3)
    names = tiny.bundle.manifest.drafter_names
    streams, hashes = [], []
    for number in range(3):
        options = SpeakOptions(seed=10 * schedule + number, temperature=(0.9, 0.0)[number % 3 == 2])
        plain = tiny.speak(TEXTS[number], replace(options, drafter="none"))
        hashes.append(plain.stats.token_hash)
        stream = SpeechStream(tiny.bundle, tiny.frontend, plan(tiny.bundle.manifest, options), networks)
        stream.text(TEXTS[number])
        stream.end()
        streams.append(stream)
    while live := [stream for stream in streams if not stream.finished]:
        for stream in live:
            if rng.random() < 0.3:
                stream.drafter, stream.gamma = rng.choice(names), rng.randint(0, 15)
            if rng.random() < 0.05:
                stream.park()
                stream.unpark()
        for outcome in together([stream.step for stream in live if rng.random() < 0.9]):
            assert outcome.error is None
    assert [stream.stats().token_hash for stream in streams] == hashes
    assert all(len(stream.stats().passes_by_drafter) > 2 for stream in streams)
    for stream in streams:
        assert sum(stream.stats().passes_by_drafter.values()) == stream.stats().target_passes
        stream.close()
    for batch in (networks.target, *networks.drafters.values()):  # every slot came back
        assert [batch.open([1.0, 0.0], 1.0).slot for _ in range(3)] == [0, 1, 2]


def test_passes_outside_are_recorded_too(tiny: Synthesizer) -> None:
    records: list[PassRecord] = []
    networks = SharedNetworks(tiny.bundle, 1, records.append)
    stream = open_stream(tiny, networks, 0)
    for _ in range(20):
        stream.step()
    assert {record.network for record in records} == {"target", "model"}
    assert sum(record.network == "target" for record in records) == stream.stats().target_passes


def test_drafts_of_many_streams_by_the_targets_own_layers_are_one_pass(tiny: Synthesizer) -> None:
    networks = SharedNetworks(tiny.bundle, slots=2)
    streams = [open_stream(tiny, networks, number) for number in (2, 3)]  # both early-exit
    records: list[PassRecord] = []
    together([stream.step for stream in streams], records.append)
    assert [record.streams for record in records if record.network == "early-exit"][:1] == [2]
    assert records[-1].network in ("target", "codec")


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
