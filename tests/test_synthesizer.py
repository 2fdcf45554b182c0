"""The Python API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

import numpy as np
import pytest

from tts_spec.engine.plan import plan
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import Chunk, SpeakOptions, SpeechError


async def pieces(*texts: str) -> AsyncIterator[str]:
    for text in texts:
        await asyncio.sleep(0)
        yield text


async def collect(stream: AsyncIterator[Chunk]) -> list[Chunk]:
    return [chunk async for chunk in stream]


def test_stream_and_astream_give_what_speak_gives(tiny: Synthesizer) -> None:
    whole = tiny.speak("Hello there. Fine!", seed=4)
    streams = [
        list(tiny.stream(["Hello ", "there. F", "ine!"], seed=4)),
        asyncio.run(collect(tiny.astream("Hello there. Fine!", seed=4))),
        asyncio.run(collect(tiny.astream(pieces("Hel", "lo there. Fi", "ne!"), seed=4))),
    ]
    for chunks in streams:
        assert chunks[-1].stats is not None
        assert chunks[-1].stats.token_hash == whole.stats.token_hash
        assert np.array_equal(np.concatenate([chunk.pcm for chunk in chunks]), whole.pcm)


def test_leaving_astream_early_frees_the_session(tiny: Synthesizer) -> None:
    async def first() -> None:
        stream = tiny.astream("A long sentence that nobody hears to its end. " * 20)
        async for _ in stream:
            break
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(first())
    for _ in range(12_000):  # two minutes: only a fault takes so long
        if tiny.engine().active == 0:
            break
        asyncio.run(asyncio.sleep(0.01))
    assert tiny.engine().active == 0


def test_an_error_of_the_callers_own_iterator_reaches_the_caller(tiny: Synthesizer) -> None:
    async def broken() -> AsyncIterator[str]:
        yield "Hello. "
        raise ConnectionError("the language model went away")

    with pytest.raises(ConnectionError, match="went away"):
        asyncio.run(collect(tiny.astream(broken())))


def test_bad_options_of_astream_raise_at_the_first_step(tiny: Synthesizer) -> None:
    with pytest.raises(SpeechError, match="voice is 'nobody'"):
        asyncio.run(collect(tiny.astream("Hi.", voice="nobody")))


def test_voices_may_be_mixed(tiny: Synthesizer) -> None:
    """Only the ratio of the weights matters, every drafter says the same, and a mix is none of its voices."""

    def said(voice: str, drafter: Literal["none", "model"] = "model") -> str:
        return tiny.speak("Hello there. Fine!", voice=voice, seed=4, drafter=drafter).stats.token_hash

    mix = said("one(2)+two(1)")
    assert mix == said("one(4) + two(2)") == said("two+one+one") == said("one(2)+two(1)", "none")
    assert len({mix, said("one"), said("two"), said("one+two")}) == 4
    assert said("one(3)") == said("one")


def test_a_mix_reads_by_the_rules_of_its_larger_part(tiny: Synthesizer) -> None:
    manifest = tiny.bundle.manifest
    assert plan(manifest, SpeakOptions(voice="one(2)+two")).british is False
    assert plan(manifest, SpeakOptions(voice="one+two(2)")).british is True
    assert plan(manifest, SpeakOptions(voice="one(1)+two(3)")).voice_weights == (0.25, 0.75)


def test_the_pcm_is_float32_within_bounds(tiny: Synthesizer) -> None:
    speech = tiny.speak("Hello there.")
    assert speech.pcm.dtype == np.float32
    assert np.abs(speech.pcm).max() <= 1.0
    assert len(speech.pcm) % 600 == 0
    assert speech.stats.audio_s == len(speech.pcm) / speech.sample_rate
