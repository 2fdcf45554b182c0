"""ElevenLabs' API of the real server, over real sockets. Holds for any engine where the fixture ``engine`` is used."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import websockets

from service.keys import ApiKey
from tests.audio.test_encoder import decode
from tests.service.client import connect, is_same_sound, loudest_hz, speak, stream_url
from tests.service.fake_engine import RATE, FakeEngine, pitch
from tests.service.test_openai import serving
from tts_spec.audio.formats import AudioFormat
from tts_spec.engine.port import Engine
from tts_spec.types import SpeechError

pytestmark = pytest.mark.anyio
BOS = {"text": " ", "voice_settings": {"stability": 0.5, "similarity_boost": 0.8}}
PATH = "/v1/text-to-speech"


def socket_url(url: str, kind: str, voice: str = "ada", query: str = "output_format=pcm_24000") -> str:
    return url.replace("/v1/stream", f"{PATH}/{voice}/{kind}?{query}")


async def say(socket: websockets.ClientConnection, *messages: dict[str, Any]) -> None:
    with suppress(websockets.ConnectionClosed):  # ``read`` then says why the server does not listen
        for message in messages:
            await socket.send(json.dumps(message))


async def read(socket: websockets.ClientConnection) -> tuple[list[dict[str, Any]], int]:
    """All frames until the close, and its code."""
    frames = []
    with suppress(websockets.ConnectionClosed):
        while True:
            frames.append(json.loads(await socket.recv()))
    assert socket.close_code is not None
    return frames, socket.close_code


async def final_of(socket: websockets.ClientConnection, context: str) -> list[dict[str, Any]]:
    """The frames until the context's last, which is left out."""
    frames = []
    while True:
        frame = json.loads(await socket.recv())
        if frame.get("contextId") == context and frame["isFinal"] is True:
            return frames
        frames.append(frame)


def audio_of(frames: list[dict[str, Any]], context: str | None = None) -> bytes:
    return b"".join(base64.b64decode(each["audio"] or "") for each in frames if each.get("contextId") == context)


def text_of(frames: list[dict[str, Any]]) -> str:
    return "".join("".join(each["alignment"]["chars"]) for each in frames if each["alignment"])


async def test_stream_input_says_what_the_native_protocol_says(engine: Engine) -> None:
    text, voice = "Hello there, my friend. ", engine.info.voices[0].name
    async with stream_url(engine) as url:
        native = await speak(url, text)
        async with connect(socket_url(url, "stream-input", voice)) as socket:
            await say(socket, BOS, *({"text": word + " "} for word in text.split()), {"text": ""})
            frames, code = await read(socket)
    *parts, final = frames
    assert code == 1000
    assert (final["audio"], final["isFinal"]) == (None, True)
    assert is_same_sound(audio_of(parts), native.audio)
    assert text_of(parts) == text
    spans = [part["alignment"]["charStartTimesMs"][-1] + part["alignment"]["charDurationsMs"][-1] for part in parts]
    assert sum(spans) == pytest.approx(len(native.audio) / 2 / RATE * 1000, abs=1)


@pytest.mark.parametrize(
    ("name", "audio_format"),
    [
        ("mp3_44100_128", AudioFormat("mp3", 44_100)),
        ("ulaw_8000", AudioFormat("ulaw", 8_000)),
        ("opus_48000_64", AudioFormat("opus", 48_000)),
    ],
)
async def test_output_formats(fake: FakeEngine, name: str, audio_format: AudioFormat) -> None:
    async with (
        stream_url(fake) as url,
        connect(socket_url(url, "stream-input", query=f"output_format={name}&seed=5")) as socket,
    ):
        await say(socket, BOS, {"text": "quite a few words "}, {"text": ""})
        frames, _ = await read(socket)
    samples, rate = decode(audio_format, audio_of(frames))
    assert rate == audio_format.rate
    assert loudest_hz(samples, rate) == pytest.approx(pitch(5), abs=4)
    assert text_of(frames) == "quite a few words "


@pytest.mark.parametrize("text", ["", "   ", "...", "😊 "])
async def test_h52_nothing_to_say_is_final_at_once(engine: Engine, text: str) -> None:
    async with (
        stream_url(engine) as url,
        connect(socket_url(url, "stream-input", engine.info.voices[0].name)) as socket,
    ):
        await say(socket, BOS, {"text": text}, {"text": ""})
        frames, code = await read(socket)
    assert (frames[-1]["isFinal"], code) == (True, 1000)
    assert audio_of(frames) == b""


async def test_contexts_speak_side_by_side(engine: Engine) -> None:
    voice = engine.info.voices[0].name
    texts = {"a": "The first one. ", "b": "Another, longer one. "}
    async with stream_url(engine) as url:
        alone = {name: (await speak(url, text)).audio for name, text in texts.items()}
        async with connect(socket_url(url, "multi-stream-input", voice)) as socket:
            for name, text in texts.items():
                await say(socket, {"text": " ", "context_id": name}, {"text": text, "context_id": name})
            await say(socket, {"text": ""}, {"close_socket": True})
            frames, code = await read(socket)
    assert code == 1000
    assert all(is_same_sound(audio_of(frames, name), alone[name]) for name in texts)
    assert sorted(each["contextId"] for each in frames if each["isFinal"]) == ["a", "b"]


async def test_e38_barge_in_stops_one_context_and_the_next_turn_speaks(fake: FakeEngine) -> None:
    async with stream_url(fake) as url, connect(socket_url(url, "multi-stream-input")) as socket:
        await say(socket, {"text": " ", "context_id": "turn1"}, {"text": "word " * 400, "context_id": "turn1"})
        assert json.loads(await socket.recv())["contextId"] == "turn1"
        await say(socket, {"context_id": "turn1", "close_context": True})
        await final_of(socket, "turn1")
        assert fake.sessions[0].cancelled
        assert fake.active == 0
        await say(socket, {"text": "Yes? ", "context_id": "turn2"}, {"context_id": "turn2", "flush": True})
        await say(socket, {"context_id": "turn2", "close_context": True})
        assert audio_of(await final_of(socket, "turn2"), "turn2")


async def test_e36_a_storm_of_barge_ins_leaves_nothing_behind(fake: FakeEngine) -> None:
    async with stream_url(fake) as url, connect(socket_url(url, "multi-stream-input")) as socket:
        for n in range(40):
            name = f"c{n}"
            await say(socket, {"text": " ", "context_id": name}, {"text": "word " * 50, "context_id": name})
            await say(socket, {"context_id": name, "close_context": True}, {"context_id": name, "close_context": True})
            await final_of(socket, name)
        assert fake.active == 0
        await say(socket, {"text": "Still here. ", "context_id": "last"}, {"close_socket": True})
        frames, code = await read(socket)
    assert code == 1000
    assert audio_of(frames, "last")


async def test_an_engine_without_room_fails_the_context_only(fake: FakeEngine) -> None:
    async with stream_url(fake) as url, connect(socket_url(url, "multi-stream-input")) as socket:
        await say(socket, {"text": "Hello. ", "context_id": "a"})
        assert "audio" in json.loads(await socket.recv())
        fake.refusal = SpeechError("overloaded", "no room")
        await say(socket, {"text": "Hello. ", "context_id": "b"})
        while (frame := json.loads(await socket.recv())).get("error") is None:
            pass
        assert (frame["error"], frame["contextId"]) == ("system_busy", "b")
        fake.refusal = None
        await say(socket, {"text": "Hello. ", "context_id": "c"}, {"close_socket": True})
        frames, code = await read(socket)
    assert code == 1000
    assert audio_of(frames, "c")


@pytest.mark.parametrize("kind", ["stream-input", "multi-stream-input"])
@pytest.mark.parametrize(
    ("voice", "query", "error"), [("nobody", "", "voice_not_found"), ("ada", "output_format=mp4", "invalid_value")]
)
async def test_a_bad_url_is_told_before_the_close(
    fake: FakeEngine, kind: str, voice: str, query: str, error: str
) -> None:
    async with stream_url(fake) as url, connect(socket_url(url, kind, voice, query)) as socket:
        await say(socket, BOS)
        (frame,), code = await read(socket)
    assert frame["error"] == error
    assert code in (1007, 1008)


async def test_keys_in_header_query_or_first_message(fake: FakeEngine) -> None:
    async with stream_url(fake, api_keys=(ApiKey.of("a", "secret"),)) as url:
        plain = socket_url(url, "stream-input")
        hello = [{"text": "Hello. "}, {"text": ""}]
        for target, headers, first in (
            (plain, {"xi-api-key": "secret"}, BOS),
            (plain + "&authorization=Bearer%20secret", {}, BOS),
            (plain, {}, BOS | {"xi_api_key": "secret"}),
            (plain, {}, BOS | {"xi-api-key": "secret"}),
        ):
            async with connect(target, additional_headers=headers) as socket:
                await say(socket, first, *hello)
                frames, code = await read(socket)
            assert code == 1000
            assert audio_of(frames)
        for target, first in ((plain, BOS), (plain, BOS | {"xi_api_key": "wrong"}), (plain + "&token=wrong", BOS)):
            async with connect(target) as socket:
                await say(socket, first, {"text": "Hello. "})
                frames, code = await read(socket)
            assert (frames[-1]["error"], code) == ("invalid_api_key", 1008)
    assert len(fake.sessions) == 4


async def test_a_silent_client_is_told_and_closed(fake: FakeEngine) -> None:
    async with (
        stream_url(fake) as url,
        connect(socket_url(url, "multi-stream-input", query="inactivity_timeout=1")) as socket,
    ):
        await say(socket, {"text": "Hello", "context_id": "a"})
        frames, code = await read(socket)
    assert (frames[-1]["error"], code) == ("input_timeout_exceeded", 1008)
    assert fake.active == 0


async def test_e34_a_client_that_leaves_frees_all_its_contexts(fake: FakeEngine) -> None:
    async with stream_url(fake) as url, connect(socket_url(url, "multi-stream-input")) as socket:
        for name in ("a", "b", "c"):
            await say(socket, {"text": "word " * 300, "context_id": name})
        await socket.recv()
        socket.transport.abort()
        assert await asyncio.to_thread(fake.wait_for, lambda: len(fake.sessions) == 3 and fake.active == 0)


# HTTP


async def test_convert_and_stream_send_the_same_file(engine: Engine) -> None:
    voice = engine.info.voices[0].name
    async with serving(engine) as http:
        answers = [
            await http.post(
                f"{PATH}/{voice}{kind}?output_format=pcm_16000", json={"text": "Hello there.", "model_id": "x"}
            )
            for kind in ("", "/stream")
        ]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].headers["content-type"] == "audio/pcm"
    assert answers[0].content == answers[1].content
    assert len(answers[0].content) > 1000


async def test_timestamps_whole_and_line_by_line(engine: Engine) -> None:
    voice, text = engine.info.voices[0].name, "Hello there, my friend."
    async with serving(engine) as http:
        query = "?output_format=pcm_24000"
        whole = (await http.post(f"{PATH}/{voice}/with-timestamps{query}", json={"text": text})).json()
        stream = await http.post(f"{PATH}/{voice}/stream/with-timestamps{query}", json={"text": text})
    lines = [json.loads(line) for line in stream.text.splitlines()]
    audio = base64.b64decode(whole["audio_base64"])
    assert b"".join(base64.b64decode(line["audio_base64"]) for line in lines) == audio
    seconds = len(audio) / 2 / RATE
    for alignments in ([whole["alignment"]], [line["alignment"] for line in lines]):
        assert "".join("".join(each["characters"]) for each in alignments) == text
        starts = [at for each in alignments for at in each["character_start_times_seconds"]]
        assert starts == sorted(starts)
        assert starts[0] == 0
        assert alignments[-1]["character_end_times_seconds"][-1] == pytest.approx(seconds, abs=0.001)


async def test_seeds_and_speeds(fake: FakeEngine) -> None:
    async with serving(fake) as http:
        normal, fast = [
            (
                await http.post(
                    f"{PATH}/ada?output_format=pcm_24000",
                    json={"text": "several words in a row", "seed": 4, "voice_settings": {"speed": speed, "style": 1}},
                )
            ).content
            for speed in (1.0, 2.0)
        ]
    assert len(normal) / len(fast) == pytest.approx(2, rel=0.06)
    assert loudest_hz(np.frombuffer(fast, "<i2") / 32767.0) == pytest.approx(pitch(4), abs=5)


@pytest.mark.parametrize(
    ("path", "body", "status", "name"),
    [
        ("/nobody", {"text": "Hi"}, 404, "voice_not_found"),
        ("/ada", {}, 400, "invalid_value"),
        ("/ada", {"text": "x" * 40_001}, 400, "max_character_limit_exceeded"),
        ("/ada", {"text": "..."}, 400, "invalid_value"),
        ("/ada/with-timestamps", {"text": "😊"}, 400, "invalid_value"),
        ("/ada/stream?output_format=mp9", {"text": "Hi"}, 400, "invalid_value"),
        ("/ada", {"text": "Hi", "voice_settings": {"speed": 9}}, 400, "invalid_value"),
    ],
)
async def test_http_errors_have_this_apis_shape(
    fake: FakeEngine, path: str, body: dict[str, Any], status: int, name: str
) -> None:
    async with serving(fake) as http:
        answer = await http.post(PATH + path, json=body)
    assert answer.status_code == status
    assert answer.json()["detail"]["status"] == name
    assert answer.json()["detail"]["message"]


async def test_lists(fake: FakeEngine) -> None:
    async with serving(fake, api_keys=(ApiKey.of("a", "secret"),)) as http:
        headers = {"xi-api-key": "secret"}
        assert (await http.get("/v1/voices", headers={"xi-api-key": "no"})).json()["detail"][
            "status"
        ] == "invalid_api_key"
        voices = (await http.get("/v1/voices", headers=headers)).json()["voices"]
        models = (await http.get("/v1/models", headers=headers)).json()
        one = (await http.get("/v1/voices/ben", headers=headers)).json()
        mix = (await http.get("/v1/voices/ada(1)+Ben(2)", headers=headers)).json()
        assert (mix["voice_id"], mix["gender"], mix["description"]) == ("ada(1)+ben(2)", "male", "Mix of ada, ben")
        found = (await http.get("/v2/voices", headers=headers)).json()
    assert [(voice["voice_id"], voice["name"], voice["category"]) for voice in voices] == [
        ("ada", "ada", "premade"), ("ben", "ben", "premade"),
    ]  # fmt: skip
    assert one == voices[1]
    assert found["voices"] == voices
    assert all(model["can_do_text_to_speech"] for model in models)
