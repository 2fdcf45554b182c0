"""Every HTTP route with requests drawn from its fields, right and wrong: none is answered with a 500, and every refusal says why.

The routes are the application's own, so a new one is drawn from, too. Over ASGI, without sockets; ``test_fuzz.py`` has those.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.routing import Route

from service.app import create_app
from service.keys import ApiKey
from service.options import ServerOptions
from service.streams import Streams
from tests.service.fake_engine import FakeEngine

SPEECH = "/v1/audio/speech"
ELEVENLABS = "/v1/text-to-speech/{voice_id}"
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
TEXTS = st.sampled_from(
    ["Hello there.", "", " ", "…", "🙂", "a" * 5000, "<break time='9999s'/>", "<phoneme ph='?'>x</phoneme>"]
)
VOICES = st.sampled_from(
    ["ada", "BEN", "alloy", "nobody", "ada(2)+ben(1)", "ada(-1)", "(", "é", "\x00", "..", "x" * 300]
)
SPEEDS = st.sampled_from([0.25, 0.7, 1, 1.4, 4, 0, -1, 5, 1e308])
SEEDS = st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**63 - 1, 2**63, -1, "7", ""])
BODIES = {
    SPEECH: {
        "input": TEXTS, "voice": VOICES | st.builds(lambda voice: {"id": voice}, VOICES), "model": st.just("tts-1"), "speed": SPEEDS,
        "response_format": st.sampled_from(["mp3", "opus", "aac", "flac", "wav", "pcm", "ogg"]), "seed": SEEDS,
        "stream_format": st.sampled_from(["audio", "sse", "x"]),
    },
    **{
        f"{ELEVENLABS}{end}": {
            "text": TEXTS, "seed": SEEDS, "voice_settings": st.builds(lambda speed: {"speed": speed}, SPEEDS | ODD), "model_id": ODD,
        }
        for end in ("", "/stream", "/with-timestamps", "/stream/with-timestamps")
    },
}  # fmt: skip
QUERIES = st.dictionaries(
    st.sampled_from(["output_format", "optimize_streaming_latency", "enable_logging", "api_key", "page_size", "x"]),
    st.sampled_from(["mp3_44100_128", "pcm_8000", "ulaw_8000", "opus_48000_32", "wav_24000", "mp3_1_1", "pcm_24000_999", "", "\x00", "é"]),
    max_size=3,
)  # fmt: skip
HEADERS = st.dictionaries(
    st.sampled_from(["xi-api-key", "authorization", "origin", "content-type", "host"]),
    st.sampled_from(["secret", "Bearer secret", "Bearer", " ", "http://[", "https://elsewhere.example", "text/plain"]),
    max_size=2,
)


@contextmanager
def application(**options: Any) -> Iterator[tuple[list[Route], Any]]:
    """The routes, and a function that answers one request."""
    engine = FakeEngine()
    with asyncio.Runner() as runner:

        async def make() -> Any:
            return create_app(Streams(engine, ServerOptions(**options)))

        app = runner.run(make())

        async def ask(method: str, url: str, content: bytes, headers: dict[str, str]) -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as http:
                return await http.request(method, url, content=content, headers=headers)

        yield (
            [route for route in app.routes if isinstance(route, Route)],
            lambda *request: runner.run(ask(*request)),
        )
    engine.close()


@st.composite
def requests(draw: st.DrawFn, routes: list[Route]) -> tuple[str, str, bytes, dict[str, str]]:
    route = draw(st.sampled_from(routes))
    methods = sorted(route.methods or {"GET"})
    method = draw(st.sampled_from(methods) | st.sampled_from(["PUT", "DELETE", "OPTIONS"]))
    path = route.path.replace("{voice_id}", quote(draw(VOICES), safe=""))
    query = "&".join(f"{name}={quote(value)}" for name, value in draw(QUERIES).items())
    fields = BODIES.get(route.path, {})
    mostly_right = {name: right | ODD if draw(st.integers(0, 5)) == 0 else right for name, right in fields.items()}
    body = draw(st.fixed_dictionaries({}, optional=mostly_right))
    content = draw(
        st.just(json.dumps(body).encode()) | st.binary(max_size=20) | ODD.map(lambda odd: json.dumps(odd).encode())
    )
    return method, f"{path}?{query}", content, draw(HEADERS)


@pytest.mark.parametrize("keys", [(), (ApiKey.of("a", "secret"),)], ids=["open", "keys"])
@pytest.mark.parametrize("examples", [150, pytest.param(3000, marks=pytest.mark.slow)])
def test_no_request_is_a_500_and_every_refusal_says_why(keys: tuple[ApiKey, ...], examples: int) -> None:
    told: set[int] = set()
    with application(api_keys=keys) as (routes, ask):
        assert {route.path for route in routes if "POST" in (route.methods or ())} == set(BODIES)

        @settings(deadline=None, max_examples=examples, database=None, suppress_health_check=list(HealthCheck))
        @given(requests(routes))
        def each(request: tuple[str, str, bytes, dict[str, str]]) -> None:
            answer = ask(*request)
            told.add(answer.status_code)
            assert answer.status_code < 500, answer.text
            if answer.status_code >= 400 and request[0] != "HEAD" and "json" in answer.headers.get("content-type", ""):
                found = answer.json()
                assert (found.get("error") or found["detail"])["message"]
            elif answer.status_code >= 400 and request[0] not in ("HEAD", "OPTIONS"):
                raise AssertionError(f"{answer.status_code} without a reason: {answer.headers}")

        each()
    assert {200, 405, 401 if keys else 400} <= told
