"""OpenAI's speech API: what a body means, without I/O; then the answers of the real server."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import av
import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.keys import ApiKey
from service.openai_api import FORMATS, MAX_INPUT_CHARS, read_order
from service.voices import OPENAI_VOICES, VoiceBook
from tests.audio.test_encoder import decode
from tests.service.client import http_client, is_same_sound, loudest_hz, speak, stream_url
from tests.service.fake_engine import INFO, RATE, FakeEngine, pitch
from tts_spec.audio.formats import AudioFormat
from tts_spec.engine.port import Engine
from tts_spec.types import SpeechError

pytestmark = pytest.mark.anyio
VOICES = VoiceBook(INFO.voices, {"boss": "ben"})
PATH = "/v1/audio/speech"


@asynccontextmanager
async def serving(engine: Engine, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with stream_url(engine, **options) as url, http_client(url) as http:
        yield http


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "tts-1", "input": "Hello there.", "voice": "alloy", **fields}


# What a body means


@pytest.mark.parametrize("name", OPENAI_VOICES)
def test_all_thirteen_voice_names_lead_to_a_voice_of_their_gender(name: str) -> None:
    order, _ = read_order(body(voice=name), VOICES)
    gender = {voice.name: voice.gender for voice in INFO.voices}[order.options.voice or ""]
    assert gender == OPENAI_VOICES[name]


@pytest.mark.parametrize(
    ("voice", "found"),
    [
        ("ada", "ada"),
        ("ADA", "ada"),
        ({"id": "ben"}, "ben"),
        ("boss", "ben"),
        (None, "ada"),
        ("Ada(2) + boss", "ada(2)+ben(1)"),
        ({"id": "alloy(0.5)+ash(1.5)"}, "ada(0.5)+ben(1.5)"),
        ("ada+alloy", "ada"),
    ],
)
def test_voices_by_their_own_names_aliases_and_ids(voice: Any, found: str) -> None:
    assert read_order(body(voice=voice), VOICES)[0].options.voice == found


def test_defaults() -> None:
    order, stream_format = read_order({"input": "Hi", "model": None}, VOICES)
    assert (order.format, order.options.speed, order.tempo, stream_format) == (FORMATS["mp3"], 1.0, 1.0, "audio")


@pytest.mark.parametrize("speed", [0.25, 0.7, 1.0, 1.4, 2, 4.0])
def test_every_speed_is_reached_by_voice_and_tempo_together(speed: float) -> None:
    order, _ = read_order(body(speed=speed), VOICES)
    assert order.options.speed * order.tempo == pytest.approx(speed)
    assert (order.tempo == 1.0) == (0.7 <= speed <= 1.4)


@pytest.mark.parametrize(
    ("fields", "field", "parts"),
    [
        ({"input": None}, "input", ["None", "4096"]),
        ({"input": ["a"]}, "input", ["['a']"]),
        ({"input": "x" * 4097}, "input", ["4097", "up to 4096"]),
        ({"voice": "nobody"}, "voice", ["'nobody'", "ada, ben", "alloy"]),
        ({"voice": 3}, "voice", ["3", "name"]),
        ({"response_format": "ogg"}, "response_format", ["'ogg'", "mp3, opus, aac, flac, wav, pcm"]),
        ({"stream_format": "raw"}, "stream_format", ["'raw'", "audio, sse"]),
        ({"speed": 5}, "speed", ["5", "0.25 to 4"]),
        ({"speed": "fast"}, "speed", ["'fast'"]),
        ({"seed": -1}, "seed", ["-1"]),
    ],
)
def test_bad_fields_are_named(fields: dict[str, Any], field: str, parts: list[str]) -> None:
    with pytest.raises(SpeechError) as caught:
        read_order(body(**fields), VOICES)
    assert caught.value.field == field
    for part in parts:
        assert part in caught.value.message


ANY = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
FIELDS = st.sampled_from(
    ["input", "voice", "model", "response_format", "stream_format", "speed", "seed", "instructions", "x"]
)


@given(st.dictionaries(FIELDS, ANY))
@settings(deadline=None, max_examples=200)
def test_any_body_is_an_order_or_a_named_refusal(fields: dict[str, Any]) -> None:
    refused = None
    try:
        read_order(fields, VOICES)
    except SpeechError as error:
        refused = error
    assert refused is None or refused.field is not None


# What the server answers


@pytest.mark.parametrize(("name", "audio_format"), FORMATS.items(), ids=list(FORMATS))
async def test_g47_g48_every_format(fake: FakeEngine, name: str, audio_format: AudioFormat) -> None:
    async with serving(fake) as http:
        answer = await http.post(PATH, json=body(response_format=name, seed=7, input="many more words than one"))
        pcm = await http.post(PATH, json=body(response_format="pcm", seed=7, input="many more words than one"))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == audio_format.media_type
    assert answer.headers["x-audio-sample-rate"] == "24000"
    assert answer.headers["x-request-id"] != pcm.headers["x-request-id"]
    samples, rate = decode(audio_format, answer.content)
    assert loudest_hz(samples, rate) == pytest.approx(pitch(7), abs=3)
    assert len(samples) / rate == pytest.approx(len(pcm.content) / 2 / RATE, abs=0.05)


async def test_pcm_is_what_the_native_protocol_sends(engine: Engine) -> None:
    async with stream_url(engine) as url, http_client(url) as http:
        native = await speak(url, "Hello there.", seed=3)
        answer = await http.post(PATH, json=body(response_format="pcm", seed=3, voice=engine.info.voices[0].name))
    assert is_same_sound(answer.content, native.audio)


async def test_speeds_beyond_the_voice_keep_the_pitch(fake: FakeEngine) -> None:
    async with serving(fake) as http:
        lengths = {}
        for speed in (0.35, 0.7, 1.4, 2.8):
            answer = await http.post(
                PATH, json=body(speed=speed, response_format="pcm", seed=4, input="a few words of speech")
            )
            samples = np.frombuffer(answer.content, "<i2") / 32767
            assert loudest_hz(samples) == pytest.approx(pitch(4), abs=6)
            lengths[speed] = len(samples)
    assert lengths[0.35] / lengths[0.7] == pytest.approx(2, rel=0.03)
    assert lengths[1.4] / lengths[2.8] == pytest.approx(2, rel=0.03)


def events(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(each.removeprefix("data: ")) for each in content.decode().split("\n\n") if each]


async def test_g50_sse_is_sse(fake: FakeEngine) -> None:
    async with serving(fake) as http:
        answer = await http.post(PATH, json=body(stream_format="sse", response_format="wav", seed=2))
        whole = await http.post(PATH, json=body(response_format="wav", seed=2))
    assert answer.headers["content-type"] == "text/event-stream"
    *deltas, done = events(answer.content)
    assert {each["type"] for each in deltas} == {"speech.audio.delta"}
    assert b"".join(base64.b64decode(each["audio"]) for each in deltas) == whole.content
    usage = done["usage"]
    assert done["type"] == "speech.audio.done"
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["input_tokens"] == len("Hello there.")


async def test_audio_comes_while_the_rest_is_being_made(fake: FakeEngine) -> None:
    async with serving(fake) as http:
        async with http.stream("POST", PATH, json=body(input="word " * 300, response_format="pcm")) as answer:
            first = await anext(aiter(answer.aiter_raw()))
            assert len(first) > 0
            assert not fake.sessions[0].over
        assert await asyncio.to_thread(fake.wait_for, lambda: fake.active == 0)  # and leaving early stops it
        assert fake.sessions[0].cancelled


async def test_e34_leaving_before_the_first_audio_stops_it_too(fake: FakeEngine) -> None:
    fake.hold()
    async with serving(fake) as http:
        waiting = asyncio.create_task(http.post(PATH, json=body(input="word " * 50)))
        assert await asyncio.to_thread(fake.wait_for, lambda: fake.active == 1)
        waiting.cancel()  # closes the connection
        assert await asyncio.to_thread(fake.wait_for, lambda: fake.sessions[0].cancelled)
        fake.release()


@pytest.mark.parametrize("text", ["", "   ", "...", "—", "😊", "\n\t"])
async def test_h52_nothing_to_speak_is_a_400(engine: Engine, text: str) -> None:
    async with serving(engine) as http:
        for fields in ({}, {"response_format": "wav"}, {"stream_format": "sse"}):
            answer = await http.post(PATH, json=body(input=text, **fields))
            assert answer.status_code == 400
            assert answer.json()["error"]["type"] == "invalid_request_error"
            assert "nothing to speak" in answer.json()["error"]["message"]


async def test_h56_too_long_a_text_is_told_the_limit(fake: FakeEngine) -> None:
    async with serving(fake) as http:
        answer = await http.post(PATH, json=body(input="x" * (MAX_INPUT_CHARS + 1)))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input")
    assert "allowed: up to 4096" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("content", "status", "param"),
    [
        (b"{", 400, None),
        (b"[]", 400, None),
        (b'{"input": "Hi", "voice": "nobody"}', 400, "voice"),
        (b'{"input": "' + b"x" * 2_000_000 + b'"}', 413, None),
    ],
)
async def test_errors_have_openais_shape(fake: FakeEngine, content: bytes, status: int, param: str | None) -> None:
    async with serving(fake) as http:
        answer = await http.post(PATH, content=content)
        known = await http.post(PATH, json=body(ref_audio="x", task_type=3, instructions="Cheerfully", lang_code=None))
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert known.status_code == 200


async def test_i58_an_engine_that_fails_before_audio_is_a_500() -> None:
    broken = FakeEngine(fail_after=1)
    try:
        async with serving(broken) as http:
            answer = await http.post(PATH, json=body(input="word " * 100))
        assert answer.status_code == 500
        assert answer.json()["error"]["type"] == "server_error"
    finally:
        broken.close()


async def test_i58_an_engine_that_fails_midway_breaks_the_body() -> None:
    broken = FakeEngine(fail_after=3)
    try:
        async with serving(broken) as http:
            with pytest.raises(httpx.RemoteProtocolError):
                await http.post(PATH, json=body(input="word " * 100, response_format="pcm"))
            answer = await http.post(PATH, json=body(input="word " * 100, stream_format="sse", response_format="pcm"))
        assert events(answer.content)[-1]["type"] == "speech.audio.error"
    finally:
        broken.close()


@pytest.mark.parametrize("who", ["server", "engine"])
async def test_a_full_house_is_a_429_with_retry_after(fake: FakeEngine, who: str) -> None:
    if who == "engine":
        fake.refusal = SpeechError("overloaded", "no room", retry_after_ms=2500)
    else:
        fake.hold()
    async with serving(fake, max_sessions=1, max_waiting=0) as http:
        first = asyncio.create_task(http.post(PATH, json=body()))
        if who == "server":
            assert await asyncio.to_thread(fake.wait_for, lambda: fake.active == 1)
        else:
            await first
        answer = await http.post(PATH, json=body())
        fake.release()
        await first
        if who == "server":
            assert first.result().status_code == 200
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == ("1" if who == "server" else "3")
    assert answer.json()["error"]["code"] == "rate_limit_exceeded"


async def test_keys(fake: FakeEngine) -> None:
    async with serving(fake, api_keys=(ApiKey.of("a", "secret"),)) as http:
        for path in (PATH, "/v1/audio/voices", "/v1/audio/models", "/v1/models"):
            method = "POST" if path == PATH else "GET"
            for headers in ({}, {"Authorization": "Bearer wrong"}):
                answer = await http.request(method, path, json=body(), headers=headers)
                assert answer.status_code == 401
                assert answer.json()["error"]["code"] == "invalid_api_key"
            answer = await http.request(method, path, json=body(), headers={"Authorization": "Bearer secret"})
            assert answer.status_code == 200
        assert (await http.get("/health")).status_code == 200


async def test_a_page_from_elsewhere_may_not_speak(fake: FakeEngine) -> None:
    async with serving(fake, allowed_origins=("https://friend.example",)) as http:
        answer = await http.post(PATH, json=body(), headers={"Origin": "https://elsewhere.example"})
        assert answer.status_code == 403
        assert (await http.post(PATH, json=body(), headers={"Origin": "https://friend.example"})).status_code == 200


async def test_lists(fake: FakeEngine) -> None:
    async with serving(fake) as http:
        models = (await http.get("/v1/models")).json()
        voices = (await http.get("/v1/audio/voices")).json()
        audio_models = (await http.get("/v1/audio/models")).json()
    assert models["object"] == "list"
    assert {each["object"] for each in models["data"]} == {"model"}
    assert [each["id"] for each in voices["voices"]] == ["ada", "ben"]
    assert {"id": "tts-1"} in audio_models["models"]


async def test_d29_d30_requests_at_once_get_their_own_audio(fake: FakeEngine) -> None:
    async with serving(fake) as http:
        answers = await asyncio.gather(
            *(
                http.post(PATH, json=body(seed=seed, response_format="opus", input="quite a few words here"))
                for seed in range(6)
            )
        )
    for seed, answer in enumerate(answers):
        with av.open(io.BytesIO(answer.content)) as container:
            samples = np.concatenate([frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)])
        assert loudest_hz(samples, 48_000) == pytest.approx(pitch(seed), abs=3)
