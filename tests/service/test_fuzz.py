"""Nonsense over live sockets and HTTP: the server stays up, tells why it refuses, and nobody else notices.

Frames are random, or recordings of real clients with something changed. Beside them one listener after another is served; their audio
must stay what it is without the noise.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import pytest
import websockets

from tests.service.client import PATIENCE_S, connect, http_client, speak, stream_url
from tests.service.fake_engine import FakeEngine

pytestmark = pytest.mark.anyio

RECORDINGS: dict[str, list[dict[str, Any]]] = {
    "/v1/stream": [
        {"type": "start", "voice": "ada", "format": "mp3", "sample_rate": 44100, "seed": 3, "timestamps": True, "speculation": True},
        {"type": "text", "text": "Hello there, "},
        {"type": "flush"},
        {"type": "text", "text": "and on."},
        {"type": "cancel"},
        {"type": "end"},
    ],
    "/v1/text-to-speech/ada/stream-input?output_format=pcm_16000": [
        {"text": " ", "voice_settings": {"stability": 0.5, "speed": 1.1}, "generation_config": {"chunk_length_schedule": [50]}},
        {"text": "Hello ", "try_trigger_generation": True},
        {"text": "there. ", "flush": True},
        {"text": ""},
    ],
    "/v1/text-to-speech/ada/multi-stream-input?auto_mode=true": [
        {"text": " ", "context_id": "a", "voice_settings": {}},
        {"text": "Hello there. ", "context_id": "a"},
        {"text": "", "context_id": "a", "flush": True},
        {"context_id": "a", "close_context": True},
        {"text": "Another. ", "context_id": "b", "flush": True},
        {"context_id": "b", "cancel": True},
        {"text": ""},
        {"close_socket": True},
    ],
}  # fmt: skip
ODD = [None, True, 0, -1, 1e308, "", " ", "\x00", "🙂" * 20, "x" * 3000, [], [[]], {}, {"a": {"b": []}}, "NaN"]
BODIES = [
    ("/v1/audio/speech", {"input": "Hello", "voice": "alloy", "response_format": "pcm", "speed": 1.2, "stream_format": "sse"}),
    ("/v1/text-to-speech/ada", {"text": "Hello", "voice_settings": {"speed": 1.2}, "seed": 3}),
    ("/v1/text-to-speech/ada/stream/with-timestamps", {"text": "Hello", "model_id": "x"}),
    ("/v1/text-to-speech/ada/with-timestamps", {"text": "Hello there"}),
]  # fmt: skip


def mutated(rng: random.Random, message: dict[str, Any]) -> str | bytes:
    """The message with something changed, or something else altogether."""
    changed = dict(message)
    match rng.randrange(10):
        case 0:
            changed[rng.choice(list(changed))] = rng.choice(ODD)
        case 1:
            changed.pop(rng.choice(list(changed)))
        case 2:
            changed[rng.choice(["type", "text", "context_id", "flush", "voice_settings", "x"])] = rng.choice(ODD)
        case 3:
            text = json.dumps(changed)
            at = rng.randrange(len(text))
            return text[:at] + rng.choice(['"', "{", "\\", "", "\x7f", ","]) + text[at + 1 :]
        case 4:
            return rng.randbytes(rng.randrange(1, 60))
        case 5:
            return json.dumps(rng.choice(ODD))
    return json.dumps(changed)


async def nuisance(url: str, rng: random.Random) -> int:
    """One visit; gives the number of frames sent. Whatever the server says before it closes must tell why."""
    path = rng.choice(list(RECORDINGS))
    sent = 0
    last: dict[str, Any] = {}
    async with connect(url.replace("/v1/stream", path)) as socket:

        async def read() -> None:
            nonlocal last
            with suppress(websockets.ConnectionClosed):
                while True:
                    frame = await socket.recv()
                    if isinstance(frame, str):
                        last = json.loads(frame)

        reading = asyncio.create_task(read())
        with suppress(websockets.ConnectionClosed):
            for message in RECORDINGS[path]:
                for _ in range(rng.randrange(1, 4)):
                    await socket.send(mutated(rng, message))
                    sent += 1
            if rng.random() < 0.3:
                socket.transport.abort()
        await asyncio.sleep(0)
        if rng.random() < 0.5:
            await asyncio.wait([reading], timeout=0.2)  # let it talk for a while
        await socket.close()
        await reading  # up to the close: what was said last is the reason
        if socket.close_code not in (None, 1000, 1005, 1006):
            code = last.get("code") if path == "/v1/stream" else last.get("error")
            assert code, f"closed with {socket.close_code} without a reason: {last}"
            assert last["message"]
    return sent


def nonsense(rng: random.Random) -> Iterator[tuple[str, str, bytes]]:
    """HTTP requests: method, path, body."""
    for path, body in BODIES:
        yield "POST", path, str(mutated(rng, body)).encode("utf-8", "surrogatepass")
        content = mutated(rng, body)
        yield (
            "POST",
            path.replace("ada", quote(rng.choice(["ben", "nobody", "..", "%00", "é"]))),
            (content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")),
        )
    yield (
        rng.choice(["PUT", "DELETE", "GET", "POST"]),
        rng.choice(["/v1/audio/speech", "/v1/models", "/v1/voices/x", "/nowhere"]),
        b"{}",
    )


@pytest.mark.parametrize("frames", [600, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_nonsense_is_refused_by_name_and_nobody_else_notices(fake: FakeEngine, frames: int) -> None:
    rng = random.Random(1)
    text = "a listener who hears every word"
    async with stream_url(fake, max_sessions=100, idle_s=PATIENCE_S) as url:
        wanted = (await speak(url, text, seed=7)).audio

        async def listen() -> int:
            heard = 0
            while not done.is_set():
                again = await speak(url, text, seed=7)
                assert again.audio == wanted, again.frames[-1]
                heard += 1
            return heard

        done = asyncio.Event()
        listeners = [asyncio.create_task(listen()) for _ in range(2)]
        sent = 0
        while sent < frames:
            sent += sum(await asyncio.gather(*(nuisance(url, random.Random(rng.random())) for _ in range(8))))
        done.set()
        assert min(await asyncio.gather(*listeners)) > 0
        assert await asyncio.to_thread(fake.wait_for, lambda: fake.active == 0)
        assert (await speak(url, text, seed=7)).audio == wanted


@pytest.mark.parametrize("rounds", [15, pytest.param(200, marks=pytest.mark.slow)])
async def test_no_http_request_is_a_500(fake: FakeEngine, rounds: int) -> None:
    rng = random.Random(2)
    async with stream_url(fake, max_sessions=100) as url, http_client(url) as http:
        for _ in range(rounds):
            for method, path, content in nonsense(rng):
                answer = await http.request(method, path, content=content)
                assert answer.status_code < 500, (method, path, content, answer.text)
                if answer.status_code >= 400:
                    told = answer.json()
                    assert told.get("error", {}).get("message") or told["detail"]["message"]
