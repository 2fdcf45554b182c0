"""The stream over real sockets: what a client gets. Holds for any engine that the fixture ``engine`` gives."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest

from tests.audio.test_encoder import decode
from tests.service.client import Heard, connect, hear, loudest_hz, send, speak, stream_url
from tests.service.fake_engine import FRAME, RATE, FakeEngine, pitch
from tts_spec.audio.formats import AudioFormat, Codec
from tts_spec.engine.port import Engine
from tts_spec.types import SpeechError

pytestmark = pytest.mark.anyio
START: dict[str, Any] = {"type": "start"}


async def test_text_in_audio_out(engine: Engine) -> None:
    async with stream_url(engine) as url:
        heard = await speak(url, "Hello there.", timestamps=True, speculation=True)
    assert heard.frames[0] == heard.one("started")
    assert heard.one("started")["sample_rate"] == engine.info.sample_rate
    assert heard.one("started")["voice"] == engine.info.voices[0].name
    assert all(len(frame) % 2 == 0 for frame in heard.frames if isinstance(frame, bytes))
    end = heard.one("end")
    assert (end["reason"], heard.close_code) == ("complete", 1000)
    assert len(heard.samples) / RATE == pytest.approx(end["stats"]["audio_s"])
    assert np.sqrt(np.mean(heard.samples**2)) > 0.01
    words = [word for message in heard.all("timestamps") for word in message["words"]]
    assert ["Hello there."[word["start_char"] : word["end_char"]].strip(".") for word in words] == ["Hello", "there"]
    assert all(0 <= word["start_s"] < word["end_s"] <= end["stats"]["audio_s"] + 1e-6 for word in words)
    assert sum(len(message["accepted"]) for message in heard.all("speculation")) == end["stats"]["tokens"]


async def test_the_formats_carry_the_same_samples(engine: Engine) -> None:
    async with stream_url(engine) as url:
        whole = await speak(url, "Same words.", seed=4)
        floats = await speak(url, "Same words.", seed=4, format="pcm_f32le")
    assert floats.one("started")["format"] == "pcm_f32le"
    assert np.allclose(np.frombuffer(floats.audio, "<f4"), whole.samples, atol=1e-4)


@pytest.mark.parametrize(
    ("codec", "rate"),
    [
        ("pcm_s16le", 16_000), ("pcm_f32le", 48_000), ("ulaw", 8_000), ("wav", 22_050), ("mp3", 44_100), ("opus", 48_000),
        ("aac", 24_000), ("flac", 24_000),
    ],
)  # fmt: skip
async def test_g47_every_format_is_the_same_speech_at_the_rate_it_says(
    fake: FakeEngine, codec: Codec, rate: int
) -> None:
    """Complaint G47: a rate declared and another one sent. The pitch tells."""
    async with stream_url(fake) as url:
        heard = await speak(url, "As many words as it takes.", seed=6, format=codec, sample_rate=rate)
    started = heard.one("started")
    assert (started["format"], started["sample_rate"]) == (codec, rate)
    samples, decoded_rate = decode(AudioFormat(codec, rate), heard.audio)
    assert decoded_rate == rate
    assert len(samples) / rate == pytest.approx(heard.one("end")["stats"]["audio_s"], abs=1200 / rate)
    assert loudest_hz(samples, rate) == pytest.approx(pitch(6), abs=3)


async def test_slow_encoding_keeps_the_order_and_the_loop_free(fake: FakeEngine) -> None:
    text = "word " * 40
    async with stream_url(fake) as url:
        first, second = await asyncio.gather(
            speak(url, text, seed=3, format="flac", timestamps=True), speak(url, text, seed=9, format="flac")
        )
    for heard, seed in ((first, 3), (second, 9)):
        samples, rate = decode(AudioFormat("flac", 24_000), heard.audio)
        t = np.arange(len(samples)) / rate
        assert np.abs(samples - 0.5 * np.sin(2 * np.pi * pitch(seed) * t)).max() < 1e-3
    assert len(first.all("timestamps")) == 40


def spoken(heard: Heard) -> tuple[str, int]:
    """The tokens and the length. Not every sample: chunks are cut by slack, so the codec adds in another order."""
    return heard.one("end")["stats"]["token_hash"], len(heard.audio)


async def test_text_may_come_by_the_letter(engine: Engine) -> None:
    text = "One letter at a time."
    async with stream_url(engine) as url:
        whole = await speak(url, text, seed=2)
        async with connect(url) as socket:
            await send(
                socket, START | {"seed": 2}, *({"type": "text", "text": letter} for letter in text), {"type": "end"}
            )
            letters = await hear(socket)
    assert spoken(letters) == spoken(whole)


@pytest.mark.parametrize("text", ["", "   ", "...", "—", "😊"])
async def test_h52_nothing_to_say_ends_at_once(engine: Engine, text: str) -> None:
    async with stream_url(engine) as url:
        heard = await speak(url, text)
    assert heard.audio == b""
    assert heard.one("end")["stats"]["audio_s"] == 0
    assert heard.close_code == 1000
    if text == "😊":
        assert "😊" in heard.one("warning")["message"]


async def test_flush_speaks_before_the_end(engine: Engine) -> None:
    async with stream_url(engine) as url, connect(url) as socket:
        await send(socket, START, {"type": "text", "text": "Not yet a sentence"}, {"type": "flush"})
        first = await hear(socket, until="flushed")
        assert len(first.audio) > 0
        await send(socket, {"type": "flush"})
        again = await hear(socket, until="flushed")
        assert again.audio == b""
        await send(socket, {"type": "end"})
        rest = await hear(socket)
    assert rest.one("end")["stats"]["audio_s"] == pytest.approx(len(first.samples + 0) / RATE)
    assert rest.close_code == 1000


async def test_e38_cancel_stops_at_once(fake: FakeEngine) -> None:
    async with stream_url(fake) as url, connect(url) as socket:
        await send(socket, START, {"type": "text", "text": "word " * 500})
        await hear(socket, until="audio")
        fake.hold()
        await send(socket, {"type": "cancel"})
        rest = await hear(socket)
        fake.release()
    assert rest.one("end") == {"type": "end", "reason": "cancelled", "stats": None}
    assert rest.close_code == 1000
    assert fake.sessions[0].cancelled
    assert fake.active == 0


async def test_d28_d29_two_clients_get_their_own_audio(engine: Engine) -> None:
    requests: list[dict[str, Any]] = [
        {"text": "The first one speaks of rivers.", "seed": 1},
        {"text": "Another one, of mountains and snow.", "seed": 9, "voice": engine.info.voices[-1].name},
        {"text": "A third.", "seed": 17},
    ]
    async with stream_url(engine) as url:
        alone = [await speak(url, **request) for request in requests]
        together = await asyncio.gather(*(speak(url, **request) for request in requests))
    assert [spoken(each) for each in together] == [spoken(each) for each in alone]
    assert len({each.audio for each in alone}) == len(requests)
    assert len({each.one("started")["session"] for each in [*alone, *together]}) == 2 * len(requests)


async def test_d30_interleaved_sessions_sound_at_their_own_pitch(fake: FakeEngine) -> None:
    seeds = range(8)
    async with stream_url(fake) as url:
        heard = await asyncio.gather(*(speak(url, "many words in this one", seed=seed) for seed in seeds))
    for seed, each in zip(seeds, heard, strict=True):
        assert loudest_hz(each.samples) == pytest.approx(pitch(seed), abs=2)


@pytest.mark.parametrize(
    ("frames", "code", "field", "close_code"),
    [
        (["nonsense"], "invalid_json", None, 1007),
        ([b"\x00\x00"], "unsupported_data", None, 1003),
        ([START | {"voice": "nobody"}], "unknown_voice", "voice", 1007),
        ([START | {"voice": "ada(2)+nobody"}], "unknown_voice", "voice", 1007),
        ([START | {"voice": "ada(0)+ben"}], "invalid_value", "voice", 1007),
        ([START | {"speed": 9}], "invalid_value", "speed", 1007),
        ([START | {"pitch": 1}], "unknown_field", "pitch", 1007),
        ([{"type": "text", "text": "too early"}], "unexpected_message", "type", 1002),
        ([START, START], "unexpected_message", "type", 1002),
        ([START, {"type": "end"}, {"type": "text", "text": "too late"}], "unexpected_message", "type", 1002),
        ([START, {"type": "text", "text": "x" * 2000}], "too_big", None, 1009),
        ([START, *[{"type": "text", "text": "x" * 500}] * 7], "too_long", "text", 1009),
    ],
)
async def test_bad_input_is_answered_and_the_slot_is_free(
    fake: FakeEngine, frames: list[Any], code: str, field: str | None, close_code: int
) -> None:
    fake.hold()  # so that an early end cannot overtake the message under test
    async with stream_url(fake, max_message_bytes=1000, max_text_chars=3000) as url, connect(url) as socket:
        for frame in frames:
            await socket.send(json.dumps(frame) if isinstance(frame, dict) else frame)
        heard = await hear(socket)
        assert fake.active == 0
        fake.release()
    error = heard.one("error")
    assert (error["code"], error["field"]) == (code, field)
    assert heard.frames[-1] == error
    assert (heard.close_code, heard.close_reason) == (close_code, code)


async def test_a_monstrous_message_closes_with_1009(fake: FakeEngine) -> None:
    async with stream_url(fake) as url, connect(url) as socket:
        await send(socket, START)
        await hear(socket, until="started")
        await socket.send("x" * (3 * 1024 * 1024))
        heard = await hear(socket)
        assert await asyncio.to_thread(fake.wait_for, lambda: fake.sessions[0].cancelled)
    assert heard.close_code == 1009


async def test_i58_an_engine_that_breaks_midway_is_reported(fake: FakeEngine) -> None:
    broken = FakeEngine(fail_after=3)
    try:
        async with stream_url(broken) as url:
            heard = await speak(url, "word " * 100)
        assert len(heard.audio) > 0
        assert heard.one("error")["code"] == "internal"
        assert heard.close_code == 1011
        assert not heard.all("end")
    finally:
        broken.close()


async def test_an_engine_without_room_says_overloaded(fake: FakeEngine) -> None:
    fake.refusal = SpeechError("overloaded", "no room for one more; allowed: 0")
    async with stream_url(fake) as url:
        heard = await speak(url, "Hello")
    assert heard.one("error")["code"] == "overloaded"
    assert heard.close_code == 1013
    assert not heard.all("started")


async def test_a_bug_in_the_engine_is_not_a_hang(fake: FakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    fake.refusal = ZeroDivisionError("oops")  # type: ignore[assignment]
    async with stream_url(fake) as url:
        heard = await speak(url, "Hello")
    assert (heard.one("error")["code"], heard.close_code) == ("internal", 1011)
    assert "oops" not in heard.one("error")["message"]
    assert "ZeroDivisionError" in caplog.text


async def test_frames_are_whole_codec_frames(fake: FakeEngine) -> None:
    async with stream_url(fake) as url:
        heard = await speak(url, "Hello there")
    sizes = [len(frame) for frame in heard.frames if isinstance(frame, bytes)]
    assert sizes[0] == 2 * FRAME  # the first one is one frame: it must not wait for more
    assert all(size % (2 * FRAME) == 0 for size in sizes)
