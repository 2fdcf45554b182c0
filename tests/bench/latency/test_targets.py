"""The targets: our protocol against the real server over the sine engine, OpenAI's against a small server, a baseline in process."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.service.client import PATIENCE_S, connect, hear, send, stream_url
from tests.service.fake_engine import FRAME, RATE, FakeEngine
from tts_spec.bench.latency.baseline import BaselineTarget, speaker
from tts_spec.bench.latency.elevenlabs import ElevenLabsTarget
from tts_spec.bench.latency.gauges import Gauges
from tts_spec.bench.latency.native import NativeTarget
from tts_spec.bench.latency.openai import OpenAiTarget
from tts_spec.bench.latency.playback import SECOND
from tts_spec.bench.latency.target import Target
from tts_spec.bench.latency.utterance import Leave, Outcome, Request, Utterance
from tts_spec.types import Pcm, SpeechError

pytestmark = pytest.mark.anyio
LONG = "word " * 300  # 4,200 frames


async def spoken(target: Target, request: Request) -> Utterance:
    now = time.perf_counter_ns()
    utterance = Utterance(request, 0, now, now)
    async with asyncio.timeout(PATIENCE_S):
        await target.speak(utterance)
    return utterance


@asynccontextmanager
async def native(fake: FakeEngine, **options: Any) -> AsyncIterator[NativeTarget]:
    async with stream_url(fake, **options) as url:
        gauges = Gauges(url.replace("ws", "http", 1).removesuffix("/v1/stream"))
        yield NativeTarget(url, gauges.active)
        await gauges.close()


async def test_native_whole_text(fake: FakeEngine) -> None:
    async with native(fake) as target:
        utterance = await spoken(target, Request("Hello there.", seed=5, drafter="none", voice="ben"))
    assert (utterance.outcome, utterance.error) == (Outcome.COMPLETE, "")
    assert utterance.playback().audio_ns == fake.sessions[0].frames * FRAME * SECOND // RATE
    given = fake.sessions[0].options
    assert (given.seed, given.drafter, given.voice) == (5, "none", "ben")
    assert utterance.onset_ns == 0  # the sine is loud from its first window on
    first, playable = utterance.first_audio_ms(), utterance.first_playable_ms()
    whole = utterance.end_to_end_ms()
    assert first is not None
    assert whole is not None
    assert playable == first <= whole
    assert utterance.sent_ns is not None
    assert utterance.opened_ns < utterance.sent_ns < utterance.arrivals[0].at_ns
    assert len(utterance.gaps_ms()) == len(utterance.arrivals) - 1 > 1
    assert utterance.cancel_ms() is None


@asynccontextmanager
async def elevenlabs(fake: FakeEngine, **options: Any) -> AsyncIterator[ElevenLabsTarget]:
    async with stream_url(fake, **options) as url:
        yield ElevenLabsTarget(url.removesuffix("/v1/stream"))


async def test_elevenlabs_whole_text_and_by_the_word(fake: FakeEngine) -> None:
    async with elevenlabs(fake) as target:
        for request in (Request("Hello there.", seed=5, voice="ben"), Request("one two three four", words_per_s=20)):
            utterance = await spoken(target, request)
            assert (utterance.outcome, utterance.error) == (Outcome.COMPLETE, "")
            assert utterance.playback().audio_ns == fake.sessions[-1].frames * FRAME * SECOND // RATE
    assert (fake.sessions[0].options.seed, fake.sessions[0].options.voice) == (5, "ben")


async def test_elevenlabs_leaving_and_refusal() -> None:
    engine = FakeEngine(frame_s=FRAME / RATE)  # so that it is not over before we leave
    async with elevenlabs(engine) as target:
        left = await spoken(target, Request(LONG, leave=Leave.DISCONNECT, leave_after_s=0.05))
        assert left.outcome is Outcome.LEFT
        assert await asyncio.to_thread(engine.wait_for, lambda: engine.active == 0)
        engine.refusal = SpeechError("overloaded", "no room")
        refused = await spoken(target, Request("Hello"))
    engine.close()
    assert (refused.outcome, refused.error) == (Outcome.REFUSED, "system_busy: no room")


async def test_native_text_by_the_word(fake: FakeEngine) -> None:
    words = "one two three four five six seven eight nine ten"
    async with native(fake) as target:
        utterance = await spoken(target, Request(words, words_per_s=10))
    assert utterance.playback().audio_ns == fake.sessions[0].frames * FRAME * SECOND // RATE
    whole = utterance.end_to_end_ms()
    assert whole is not None
    assert whole >= 900  # the last word comes after 900 ms


async def test_native_text_by_the_word_is_spoken_while_it_comes(fake: FakeEngine) -> None:
    async with native(fake) as target:
        utterance = await spoken(target, Request("one two", words_per_s=0.001, leave=Leave.CANCEL))
    assert utterance.outcome is Outcome.LEFT
    assert utterance.arrivals
    assert fake.sessions[0]._received == "one "


@pytest.mark.parametrize("leave", Leave)
async def test_e34_native_leaving_frees_the_slot(leave: Leave) -> None:
    engine = FakeEngine(frame_s=FRAME / RATE)  # LONG takes more than a minute
    async with native(engine) as target:
        utterance = await spoken(target, Request(LONG, leave=leave, leave_after_s=0.05))
    engine.close()
    assert utterance.outcome is Outcome.LEFT
    assert utterance.left_ns is not None
    assert utterance.left_ns >= utterance.arrivals[0].at_ns + 50_000_000
    assert engine.sessions[0].cancelled
    free, cancel = utterance.free_ms(), utterance.cancel_ms()
    assert free is not None
    assert free > 0
    assert utterance.end_to_end_ms() is None
    if leave is Leave.CANCEL:
        assert cancel is not None
        assert 0 <= cancel <= free
    else:
        assert cancel is None  # nobody is there to hear what followed


async def test_native_an_engine_slower_than_real_time_shows_as_underruns() -> None:
    engine = FakeEngine(frame_s=0.05)  # a frame of 25 ms in 50
    async with native(engine) as target:
        utterance = await spoken(target, Request("Hello there you."))
    engine.close()
    playback = utterance.playback()
    assert playback.underruns  # a busy machine may hear several pieces at once
    assert playback.min_lead_ns is not None
    assert playback.min_lead_ns < 0


@pytest.mark.parametrize("who", ["server", "engine"])
async def test_native_refused(fake: FakeEngine, who: str) -> None:
    async with native(fake, max_sessions=1, max_waiting=0) as target, connect(target._url) as other:
        if who == "server":
            await send(other, {"type": "start"})
            await hear(other, until="started")
        else:
            fake.refusal = SpeechError("overloaded", "no room")
            await other.close()
        utterance = await spoken(target, Request("Hello."))
    assert utterance.outcome is Outcome.REFUSED
    assert utterance.error.startswith("overloaded: ")


async def test_native_failures_are_outcomes(fake: FakeEngine) -> None:
    async with native(fake) as target:
        unknown = await spoken(target, Request("Hello.", voice="zed"))
    assert (unknown.outcome, unknown.error[:15]) == (Outcome.FAILED, "unknown_voice: ")
    nobody = await spoken(NativeTarget("ws://127.0.0.1:1/v1/stream"), Request("Hello."))
    assert nobody.outcome is Outcome.FAILED
    engine = FakeEngine(fail_after=3)
    async with native(engine) as target:
        broken = await spoken(target, Request(LONG))
    engine.close()
    assert (broken.outcome, broken.error[:10]) == (Outcome.FAILED, "internal: ")
    assert broken.arrivals


@asynccontextmanager
async def peer(endpoint: Any) -> AsyncIterator[OpenAiTarget]:
    """A server with nothing but ``POST /v1/audio/speech``."""
    app = Starlette(routes=[Route("/v1/audio/speech", endpoint, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none", lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server.serve([listener]))
        target = OpenAiTarget(f"http://127.0.0.1:{listener.getsockname()[1]}")
        yield target
        await target.close()
        server.should_exit = True
        await task


def tone(ms: int) -> bytes:
    return (8000 * np.sin(np.arange(RATE * ms // 1000) / 10)).astype("<i2").tobytes()


async def test_openai_streams_pcm_cut_anywhere() -> None:
    bodies: list[dict[str, Any]] = []
    data = bytes(4800) + tone(300)  # 100 ms of silence first

    async def endpoint(request: HttpRequest) -> Response:
        bodies.append(await request.json())

        async def stream() -> AsyncIterator[bytes]:
            for start in range(0, len(data), 2401):  # half a sample at every cut
                yield data[start : start + 2401]
                await asyncio.sleep(0.01)

        return StreamingResponse(stream(), media_type="audio/pcm")

    async with peer(endpoint) as target:
        utterance = await spoken(target, Request("Hello.", voice="nova"))
    assert utterance.outcome is Outcome.COMPLETE
    assert bodies[0].items() >= {"input": "Hello.", "voice": "nova", "response_format": "pcm", "model": "tts-1"}.items()
    assert utterance.playback().audio_ns == pytest.approx(0.4 * SECOND, abs=100)
    assert utterance.onset_ns == 90_000_000  # its window holds the first 10 ms of tone
    first, playable = utterance.first_audio_ms(), utterance.first_playable_ms()
    assert first is not None
    assert playable is not None
    assert first >= playable + 90


async def test_openai_refusals_failures_and_leaving() -> None:
    gone = asyncio.Event()

    async def endpoint(request: HttpRequest) -> Response:
        text = (await request.json())["input"]
        if text in ("429", "500"):
            return JSONResponse({"error": "no"}, int(text))

        async def stream() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield tone(25)
                    await asyncio.sleep(0.01)
            finally:
                gone.set()

        return StreamingResponse(stream(), media_type="audio/pcm")

    async with peer(endpoint) as target:
        refused = await spoken(target, Request("429"))
        failed = await spoken(target, Request("500"))
        left = await spoken(target, Request("on and on", leave=Leave.DISCONNECT, leave_after_s=0.05))
        async with asyncio.timeout(PATIENCE_S):
            await gone.wait()
    assert (refused.outcome, refused.error) == (Outcome.REFUSED, 'HTTP 429: {"error":"no"}')
    assert failed.outcome is Outcome.FAILED
    assert (left.outcome, left.cancel_ms()) == (Outcome.LEFT, None)
    assert left.left_ns is not None
    assert left.left_ns - left.arrivals[0].at_ns >= 50_000_000
    nobody = OpenAiTarget("http://127.0.0.1:1")
    assert (await spoken(nobody, Request("Hello."))).outcome is Outcome.FAILED
    await nobody.close()


async def test_a_baseline_speaks_a_sentence_at_a_time_one_listener_at_a_time() -> None:
    spoken_texts: list[str] = []

    def speak(sentence: str) -> Pcm:
        spoken_texts.append(sentence)
        time.sleep(0.05)
        return np.full(RATE // 2, 0.1, np.float32) * np.sin(np.arange(RATE // 2)).astype(np.float32)

    target = BaselineTarget(speak)
    begun = time.perf_counter()
    two = await asyncio.gather(*(spoken(target, Request("First one. Second one.")) for _ in range(2)))
    assert time.perf_counter() - begun >= 0.2  # four sentences, one worker
    assert sorted(spoken_texts) == ["First one."] * 2 + ["Second one."] * 2
    assert all(each.outcome is Outcome.COMPLETE and len(each.arrivals) == 2 for each in two)
    slow = await spoken(target, Request("First one. Second one.", words_per_s=10))
    assert slow.sent_ns is not None
    came_ms = [(arrival.at_ns - slow.sent_ns) / 1e6 for arrival in slow.arrivals]
    assert came_ms[0] >= 100 + 50  # its last word comes after 100 ms
    assert came_ms[1] >= 300 + 50
    await target.close()


async def test_who_leaves_a_baseline_waits_for_the_sentence_being_spoken() -> None:
    now = [0]

    def speak(sentence: str) -> Pcm:
        now[0] += 50_000_000
        return np.zeros(RATE // 2, np.float32)

    target = BaselineTarget(speak, clock=lambda: now[0])
    left = await spoken(target, Request("First one. Second one. Third one.", leave=Leave.CANCEL, leave_after_s=0.01))
    await target.close()
    assert (left.outcome, len(left.arrivals)) == (Outcome.LEFT, 1)
    assert left.free_ms() == 40  # 10 ms after the first sentence it leaves, 50 ms after it the second is finished


async def test_a_baseline_that_breaks_is_a_failure() -> None:
    def speak(sentence: str) -> Pcm:
        raise SpeechError("invalid_value", "no")

    target = BaselineTarget(speak)
    utterance = await spoken(target, Request("Hello."))
    await target.close()
    assert (utterance.outcome, utterance.error) == (Outcome.FAILED, "SpeechError: no")


async def test_hibari_as_a_baseline() -> None:
    target = BaselineTarget(speaker("hibari"))
    utterance = await spoken(target, Request("Hello there. How are you?"))
    await target.close()
    assert utterance.outcome is Outcome.COMPLETE
    assert len(utterance.arrivals) == 2
    assert 0.8 * SECOND < utterance.playback().audio_ns < 5 * SECOND
    assert utterance.first_audio_ms() is not None


def test_an_unknown_baseline_is_named() -> None:
    with pytest.raises(SpeechError, match="baseline is 'espeak'; allowed: kokoro, hibari"):
        speaker("espeak")
