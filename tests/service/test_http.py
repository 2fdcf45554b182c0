"""The HTTP side over the real server: pages, headers, health, voices, and who may open a socket."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx
import pytest
import websockets

from service.app import DEMO_FILES
from service.keys import ApiKey
from tests.service.client import connect, hear, http_client, send, stream_url
from tests.service.fake_engine import FakeEngine
from tts_spec.engine.port import Engine

pytestmark = pytest.mark.anyio


@pytest.fixture
async def http(engine: Engine) -> AsyncIterator[httpx.AsyncClient]:
    async with stream_url(engine) as url, http_client(url) as client:
        yield client


@pytest.mark.parametrize("path", DEMO_FILES)
async def test_the_demo_files_are_served_with_their_type(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == DEMO_FILES[path][1]
    assert len(answer.content) > 100


@pytest.mark.parametrize("path", ["/", "/health", "/nowhere"])
async def test_every_answer_has_the_security_headers(http: httpx.AsyncClient, path: str) -> None:
    headers = (await http.get(path)).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "server" not in headers


async def test_the_page_needs_nothing_inline_and_nothing_from_elsewhere(http: httpx.AsyncClient) -> None:
    page = (await http.get("/")).text
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:", page)
    for path in DEMO_FILES:
        text = (await http.get(path)).text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://", text)
    for reference in re.findall(r'(?:src|href)="([^"#]+)"', page):
        assert reference in DEMO_FILES


async def test_health(http: httpx.AsyncClient, engine: Engine) -> None:
    answer = (await http.get("/health")).json()
    assert answer["status"] == "ok"
    assert answer["engine"]["sample_rate"] == engine.info.sample_rate
    assert answer["engine"]["drafters"] == list(engine.info.drafters)
    assert answer["sessions"] == {"active": 0, "limit": 16}


async def test_e36_health_counts_sessions(fake: FakeEngine) -> None:
    async with stream_url(fake) as url, connect(url) as socket, http_client(url) as client:
        await send(socket, {"type": "start"})
        await hear(socket, until="started")
        answer = (await client.get("/health")).json()
    assert (answer["sessions"]["active"], answer["engine"]["active"]) == (1, 1)


async def test_voices(http: httpx.AsyncClient, engine: Engine) -> None:
    answer = (await http.get("/v1/voices")).json()
    assert [voice["name"] for voice in answer["voices"]] == [voice.name for voice in engine.info.voices]
    assert set(answer["voices"][0]) >= {"name", "language", "gender", "description", "voice_id", "category", "labels"}
    assert answer["default"] == engine.info.voices[0].name


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nowhere", 404), ("POST", "/health", 405)])
async def test_http_errors_are_json(http: httpx.AsyncClient, method: str, path: str, status: int) -> None:
    answer = await http.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/../pyproject.toml", "/%2e%2e/pyproject.toml", "/client.py"])
async def test_nothing_else_is_served(http: httpx.AsyncClient, path: str) -> None:
    assert (await http.get(path)).status_code == 404


@pytest.mark.parametrize("origin", ["https://elsewhere.example", "null", "http://127.0.0.1:1", "http://["])
async def test_a_page_from_elsewhere_may_not_open_a_socket(fake: FakeEngine, origin: str) -> None:
    async with stream_url(fake) as url:
        with pytest.raises(websockets.InvalidStatus) as caught:
            async with connect(url, origin=origin):
                pass
    assert caught.value.response.status_code == 403


async def test_our_own_page_and_allowed_ones_may(fake: FakeEngine) -> None:
    friend = "https://friend.example"
    async with stream_url(fake, allowed_origins=(friend,)) as url:
        own = url.replace("ws", "http", 1).removesuffix("/v1/stream")
        for origin in (own, friend):
            async with connect(url, origin=origin) as socket:
                await send(socket, {"type": "start"})
                await hear(socket, until="started")


async def test_compression_is_not_negotiated(fake: FakeEngine) -> None:
    async with stream_url(fake) as url, connect(url, compression="deflate") as socket:
        assert socket.protocol.extensions == []


async def test_pages_of_allowed_origins_may_read_the_answers(fake: FakeEngine) -> None:
    friend = "https://friend.example"
    async with stream_url(fake, allowed_origins=(friend,)) as url, http_client(url) as client:
        asked = {
            "Origin": friend,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization",
        }
        allowed = await client.options("/v1/audio/speech", headers=asked)
        read = await client.get("/v1/voices", headers={"Origin": friend})
        stranger = await client.options("/v1/audio/speech", headers=asked | {"Origin": "https://elsewhere.example"})
    assert allowed.headers["access-control-allow-origin"] == read.headers["access-control-allow-origin"] == friend
    assert "access-control-allow-origin" not in stranger.headers


async def test_text_and_keys_are_never_logged(fake: FakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    text, key = "a very private remark", "tts_private"
    async with stream_url(fake, api_keys=(ApiKey.of("a", key),)) as url, http_client(url) as client:
        headers = {"Authorization": f"Bearer {key}"}
        for voice in ("ada", "nobody"):
            await client.post("/v1/audio/speech", json={"input": text, "voice": voice}, headers=headers)
        async with connect(url, additional_headers=headers) as socket:
            await send(socket, {"type": "start"}, {"type": "text", "text": text}, {"type": "start"})
            await hear(socket)
    ours = [record.getMessage() for record in caplog.records if record.name.startswith(("service", "tts_spec"))]
    assert not any(text in each or key in each for each in ours)
