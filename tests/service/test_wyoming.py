"""Wyoming: the state machine alone, then the real server with the client of the ``wyoming`` package."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

from service import actions as wire
from service.actions import Action
from service.options import ServerOptions
from service.server import running
from service.speech import Piece
from service.voices import VoiceBook
from service.wyoming import MAX_WAITING, WyomingProtocol
from tests.service.client import PATIENCE_S, is_same_sound, speak
from tests.service.fake_engine import INFO, RATE, FakeEngine
from tests.service.test_protocol import STATS
from tts_spec.engine.port import Engine

pytestmark = pytest.mark.anyio
LAST = Piece(bytes(1200), 0.0, 0.025, stats=STATS)


def make() -> WyomingProtocol:
    return WyomingProtocol(VoiceBook(INFO.voices, {}), RATE, ServerOptions(max_text_chars=100))


def feed(machine: WyomingProtocol, kind: str, **data: Any) -> list[Action]:
    return list(machine.feed(json.dumps({"type": kind, "data": data})))


def names(actions: Sequence[Action]) -> list[str]:
    return [
        json.loads(each.message.model_dump_json())["type"] if isinstance(each, wire.Send) else type(each).__name__
        for each in actions
    ]


def test_one_shot() -> None:
    machine = make()
    opened, *rest = feed(machine, "synthesize", text="Hello", voice={"name": "ben"})
    assert isinstance(opened, wire.Open)
    assert (opened.options.voice, opened.format.rate) == ("ben", RATE)
    assert names(rest) == ["Feed", "End"]
    assert names(machine.event(LAST, opened.key)) == ["audio-start", "SendAudio", "Consumed", "audio-stop", "Over"]


def test_streaming_ignores_the_whole_text_sent_for_old_servers() -> None:
    machine = make()
    assert feed(machine, "synthesize-start", voice={"language": "en_GB"}) == []
    opened, fed = feed(machine, "synthesize-chunk", text="Hello ")
    assert isinstance(opened, wire.Open)
    assert opened.options.voice == "ben"
    assert names([fed, *feed(machine, "synthesize-chunk", text="there.")]) == ["Feed", "Feed"]
    assert feed(machine, "synthesize", text="Hello there.") == []
    assert names(feed(machine, "synthesize-stop")) == ["End"]
    assert names(machine.event(LAST, opened.key))[-3:] == ["audio-stop", "synthesize-stopped", "Over"]


def test_h52_nothing_to_say_ends_at_once() -> None:
    assert names(feed(make(), "synthesize", text="  ")) == ["audio-start", "audio-stop"]
    machine = make()
    feed(machine, "synthesize-start")
    assert names(feed(machine, "synthesize-stop")) == ["audio-start", "audio-stop", "synthesize-stopped"]


def test_requests_are_spoken_one_after_another() -> None:
    machine = make()
    opened = feed(machine, "synthesize", text="One")[0]
    assert isinstance(opened, wire.Open)
    assert feed(machine, "synthesize", text="Two") == []
    actions = machine.event(LAST, opened.key)
    assert names(actions)[-5:] == ["audio-stop", "Over", "Open", "Feed", "End"]
    for _ in range(MAX_WAITING):
        assert feed(machine, "synthesize", text="More") == []
    assert "error" in names(feed(machine, "synthesize", text="Too many"))


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("synthesize", {}),
        ("synthesize", {"text": 3}),
        ("synthesize", {"text": "Hi", "voice": {"name": "nobody"}}),
        ("synthesize", {"text": "x" * 101}),
        ("synthesize-chunk", {"text": "too early"}),
        ("synthesize-stop", {}),
    ],
)
def test_bad_events_are_told_why(kind: str, data: dict[str, Any]) -> None:
    actions = feed(make(), kind, **data)
    assert names(actions)[0] == "error"
    assert "Close" in names(actions)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["synthesize", "synthesize-start", "synthesize-chunk", "synthesize-stop", "describe", "ping", "x"]
            ),
            st.dictionaries(
                st.sampled_from(["text", "voice"]),
                st.none()
                | st.text(max_size=5)
                | st.integers()
                | st.dictionaries(st.sampled_from(["name", "language"]), st.text(max_size=3) | st.none(), max_size=2),
                max_size=2,
            ),
        ),
        max_size=8,
    )
)
@settings(deadline=None, max_examples=200)
def test_any_events_are_answered_or_refused(events: list[tuple[str, dict[str, Any]]]) -> None:
    machine, closed = make(), False
    for kind, data in events:
        actions = feed(machine, kind, **data)
        assert not (closed and actions)
        closed = closed or "Close" in names(actions)


# Over TCP


@asynccontextmanager
async def client(engine: Engine, **options: Any) -> AsyncIterator[tuple[AsyncTcpClient, str]]:
    async with running(engine, ServerOptions(port=0, wyoming_port=0, drain_s=0.05, **options)) as address:
        assert address.wyoming_port
        async with AsyncTcpClient("127.0.0.1", address.wyoming_port) as connected:
            yield connected, address.replace("http", "ws", 1) + "/v1/stream"


async def hear(connected: AsyncTcpClient, until: str) -> list[Event]:
    events = []
    async with asyncio.timeout(PATIENCE_S):
        while event := await connected.read_event():
            events.append(event)
            if event.type == until:
                break
    return events


def audio_of(events: list[Event]) -> bytes:
    start, *chunks = [event for event in events if AudioStart.is_type(event.type) or AudioChunk.is_type(event.type)]
    assert AudioStart.from_event(start).rate == RATE
    for chunk in chunks:
        assert (AudioChunk.from_event(chunk).rate, len(chunk.payload or b"") % 2) == (RATE, 0)
    return b"".join(chunk.payload or b"" for chunk in chunks)


async def test_the_client_hears_what_the_native_protocol_says(engine: Engine) -> None:
    async with client(engine) as (connected, url):
        native = await speak(url, "Hello there.")
        voice = SynthesizeVoice(name=engine.info.voices[0].name)
        await connected.write_event(Synthesize(text="Hello there.", voice=voice).event())
        once = await hear(connected, "audio-stop")
        await connected.write_event(SynthesizeStart(voice=voice).event())
        for chunk in ("Hello ", "there."):
            await connected.write_event(SynthesizeChunk(text=chunk).event())
        await connected.write_event(Synthesize(text="Hello there.", voice=voice).event())
        await connected.write_event(SynthesizeStop().event())
        streamed = await hear(connected, "synthesize-stopped")
    assert is_same_sound(audio_of(once), native.audio)
    assert is_same_sound(audio_of(streamed), native.audio)
    assert AudioStop.is_type(streamed[-2].type)
    assert SynthesizeStopped.is_type(streamed[-1].type)


async def test_describe_and_ping(fake: FakeEngine) -> None:
    async with client(fake) as (connected, _):
        await connected.write_event(Describe().event())
        (event,) = await hear(connected, "info")
        await connected.write_event(Ping(text="x").event())
        (pong,) = await hear(connected, "pong")
    (program,) = Info.from_event(event).tts
    assert program.supports_synthesize_streaming
    assert [(voice.name, voice.languages) for voice in program.voices] == [("ada", ["en-US"]), ("ben", ["en-GB"])]
    assert Pong.from_event(pong).text == "x"


async def test_an_error_is_told_and_closes(fake: FakeEngine) -> None:
    async with client(fake) as (connected, _):
        await connected.write_event(Synthesize(text="Hi", voice=SynthesizeVoice(name="nobody")).event())
        (event,) = await hear(connected, "never")
    assert Error.from_event(event).code == "unknown_voice"
    assert "ada, ben" in Error.from_event(event).text


async def test_e34_leaving_stops_the_speech(fake: FakeEngine) -> None:
    async with client(fake) as (connected, _):
        await connected.write_event(Synthesize(text="word " * 2000).event())
        await hear(connected, "audio-chunk")
        await connected.disconnect()
        assert await asyncio.to_thread(fake.wait_for, lambda: fake.sessions[0].cancelled)


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\n",
        b"[]\n",
        b'{"type": "synthesize", "data_length": 99999999}\n',
        b'{"type": 3}\n',
        b"x" * 200_000,
        b'{"type":"synthesize","data":[1]}\n',
    ],
)
async def test_garbage_ends_its_own_connection_only(fake: FakeEngine, data: bytes) -> None:
    async with running(fake, ServerOptions(port=0, wyoming_port=0, drain_s=0.05)) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", address.wyoming_port)
        writer.write(data)
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionResetError):
                await reader.read()  # an error event or nothing, then the end
        writer.close()
        with suppress(ConnectionResetError):
            await writer.wait_closed()
        async with AsyncTcpClient("127.0.0.1", address.wyoming_port or 0) as other:
            await other.write_event(Synthesize(text="Still here").event())
            assert audio_of(await hear(other, "audio-stop"))


async def test_wyoming_is_off_unless_asked_for(fake: FakeEngine) -> None:
    async with running(fake, ServerOptions(port=0)) as address:
        assert address.wyoming_port is None
