"""/metrics and /ready over the real server, and the meter of one stream with a clock of its own."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.loop_lag import watch_lag
from service.metrics import ENGINE_HELP, OUTCOMES, Metrics, StreamMeter
from service.options import ServerOptions
from service.streams import Streams
from tests.service.client import PATIENCE_S, connect, hear, http_client, send, speak, stream_url
from tests.service.fake_engine import FRAME, RATE, FakeEngine
from tests.service.test_document import DOCUMENT
from tests.virtual_time import VirtualTime, finish
from tts_spec.engine.local import LocalEngine
from tts_spec.engine.port import Engine
from tts_spec.types import SpeechError

pytestmark = pytest.mark.anyio
START: dict[str, Any] = {"type": "start"}


def samples(text: str) -> dict[str, float]:
    """Every sample by its name and labels, e.g. ``tts_sessions_total{outcome="left"}``."""
    found = {}
    for family in text_string_to_metric_families(text):
        for name, labels, value, *_ in family.samples:
            shown = ",".join(f'{key}="{each}"' for key, each in labels.items())
            found[f"{name}{{{shown}}}" if shown else name] = value
    return found


async def scrape(url: str) -> dict[str, float]:
    async with http_client(url) as client:
        answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return samples(answer.text)


async def test_streams_are_counted(fake: FakeEngine) -> None:
    async with stream_url(fake) as url:
        before = await scrape(url)
        heard = await speak(url, "Hello there.", format="pcm_f32le")
        async with connect(url) as socket:
            await send(socket, START, {"type": "text", "text": "word " * 2000})
            await hear(socket, until="audio")
            during = await scrape(url)
            await send(socket, {"type": "cancel"})
            await hear(socket)
        async with connect(url) as socket:
            await send(socket, START)
            await hear(socket, until="started")
            socket.transport.abort()
        await speak(url, "Hi.", voice="zed")
        async with asyncio.timeout(PATIENCE_S):
            while (after := await scrape(url))["tts_sessions_active"]:  # noqa: ASYNC110 - the event is in the server
                await asyncio.sleep(0.01)
    outcomes = {name: after[f'tts_sessions_total{{outcome="{name}"}}'] for name in OUTCOMES}
    assert {name: n for name, n in outcomes.items() if n} == {
        "complete": 1, "cancelled": 1, "left": 1, "unknown_voice": 1,
    }  # fmt: skip
    assert (before["tts_sessions_active"], during["tts_sessions_active"]) == (0, 1)
    assert during["tts_engine_sessions_active"] == 1
    assert after["tts_engine_sessions_active"] == after["tts_sessions_refused_total"] == 0
    assert after["tts_characters_total"] == len("Hello there.") + len("word " * 2000)
    assert during["tts_audio_seconds_total"] >= len(heard.audio) / 4 / RATE  # and some of the second stream
    assert after["tts_first_audio_seconds_count"] == 2
    assert after["tts_chunk_gap_seconds_count"] > 0
    assert after["process_resident_memory_bytes"] > 1e7


async def test_the_engines_numbers_are_exported(engine: Engine) -> None:
    async with stream_url(engine) as url:
        heard = await speak(url, "Hello there.", drafter="none")
        found = await scrape(url)
    stats = heard.one("end")["stats"]
    assert found["tts_engine_ready"] == 1
    assert found["tts_engine_tokens_total"] == stats["tokens"]
    assert found["tts_engine_rounds_total"] == stats["target_passes"]
    assert set(engine.metrics()) <= set(ENGINE_HELP)
    knows_when = isinstance(engine, LocalEngine)  # the sine engine does not say when it made a chunk
    assert (found["tts_chunk_overhead_seconds_count"] > 0) == knows_when
    assert found["tts_chunk_overhead_seconds_sum"] < 60


async def test_e36_the_real_engine_counts_the_cancelled_too(engine: Engine) -> None:
    async with stream_url(engine) as url:
        async with connect(url) as socket:
            await send(socket, START, {"type": "text", "text": "word " * 200})
            await hear(socket, until="audio")
            await send(socket, {"type": "cancel"})
            await hear(socket)
        async with asyncio.timeout(PATIENCE_S):
            while (found := await scrape(url))["tts_engine_sessions_active"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert found["tts_engine_tokens_total"] > 0


@pytest.mark.parametrize("who", ["server", "engine"])
async def test_refusals_are_counted(fake: FakeEngine, who: str) -> None:
    if who == "engine":
        fake.refusal = SpeechError("overloaded", "no room")
    async with stream_url(fake, max_sessions=1 if who == "server" else 4, max_waiting=0) as url, connect(url) as first:
        await send(first, START | {"voice": "ada"})
        await hear(first, until="started" if who == "server" else None)
        heard = await speak(url, "Hello")
        assert heard.one("error")["code"] == "overloaded"
        refused = 1 if who == "server" else 2
        assert (await scrape(url))["tts_sessions_refused_total"] == refused


async def test_ready_follows_the_engine(fake: FakeEngine) -> None:
    async with stream_url(fake) as url, http_client(url) as client:
        fake.ready = False
        cold = await client.get("/ready")
        assert (await client.get("/health")).status_code == 200
        fake.ready = True
        warm = await client.get("/ready")
    assert (cold.status_code, cold.json()) == (503, {"ready": False})
    assert (warm.status_code, warm.json()) == (200, {"ready": True})


async def test_a_server_that_drains_is_not_ready(fake: FakeEngine) -> None:
    streams = Streams(fake, ServerOptions())
    assert streams.ready
    await streams.drain(0.01)
    assert not streams.ready


async def test_the_meter_of_a_stream() -> None:
    now = 10.0
    engine = FakeEngine()
    metrics = Metrics(engine, lambda: 0)
    meter = StreamMeter(metrics, lambda: now)
    meter.text(5)
    now = 10.07
    meter.text(6)  # only the first text starts the clock
    now = 10.11
    meter.audio(FRAME / RATE)
    now = 10.14
    meter.audio(4 * FRAME / RATE)
    meter.outcome("complete")
    meter.over()
    engine.close()
    found = samples(metrics.exposition().decode())
    assert found["tts_first_audio_seconds_sum"] == pytest.approx(0.11)
    assert found["tts_chunk_gap_seconds_sum"] == pytest.approx(0.03)
    assert found["tts_audio_seconds_total"] == pytest.approx(0.125)
    assert found["tts_characters_total"] == 11
    assert found['tts_sessions_total{outcome="complete"}'] == 1


async def test_f42_a_blocked_loop_shows_as_lag(fake: FakeEngine) -> None:
    async with stream_url(fake) as url:
        time.sleep(0.3)  # noqa: ASYNC251 - the fault to be seen
        found = await scrape(url)
    slow = found["tts_event_loop_lag_seconds_count"] - found['tts_event_loop_lag_seconds_bucket{le="0.2"}']
    assert slow >= 1  # a busy machine may add its own


def test_lag_is_what_the_loop_stood_still_for_and_nothing_on_a_free_one() -> None:
    lags: list[float] = []
    loop = VirtualTime()

    async def stand_still_once() -> None:
        task = asyncio.create_task(watch_lag(lags.append, 0.1))
        await asyncio.sleep(0.55)
        loop.now += 0.3  # of a period that ends at 0.6
        await asyncio.sleep(0.5)
        task.cancel()

    finish(loop, stand_still_once())
    loop.close()
    assert lags[:5] == pytest.approx([0.0] * 5)
    assert lags[5] == pytest.approx(0.25)
    assert lags[6:] == pytest.approx([0.0] * 4)


async def test_every_metric_is_documented(fake: FakeEngine) -> None:
    async with stream_url(fake) as url:
        await speak(url, "Hello")
        found = await scrape(url)
    ours = {name.partition("{")[0] for name in found if name.startswith("tts_")}
    plain = {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in ours}
    plain |= {f"tts_engine_{name}" for name in ENGINE_HELP}
    assert {name for name in plain if f"| `{name}` |" not in DOCUMENT and not name.endswith("_created")} == set()
