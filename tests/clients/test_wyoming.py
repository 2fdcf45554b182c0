"""The `wyoming` package's client and the starter voice: once and streaming, as Home Assistant does it."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from wyoming.client import AsyncTcpClient
from wyoming.event import Event
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop

from tests.clients.conftest import Servers, says_it
from tests.service.client import PATIENCE_S

pytestmark = pytest.mark.clients
TEXT = "The weather is nice today, and the sun is shining."


async def _speak(port: int, events: list[Event], until: str) -> tuple[bytes, int]:
    async with asyncio.timeout(PATIENCE_S), AsyncTcpClient("127.0.0.1", port) as client:
        for event in events:
            await client.write_event(event)
        audio, rate = bytearray(), 0
        while (event := await client.read_event()) and event.type != until:
            if event.type == "audio-chunk":
                audio += event.payload or b""
                rate = event.data["rate"]
        assert event is not None
        return bytes(audio), rate


@pytest.mark.parametrize("streaming", [False, True])
def test_a_sentence(servers: Servers, streaming: bool) -> None:
    whole = Synthesize(text=TEXT).event()
    chunks = [SynthesizeChunk(text=word + " ").event() for word in TEXT.split()]
    streamed = [SynthesizeStart().event(), *chunks, whole, SynthesizeStop().event()]
    if streaming:
        audio, rate = asyncio.run(_speak(servers.wyoming_port, streamed, "synthesize-stopped"))
    else:
        audio, rate = asyncio.run(_speak(servers.wyoming_port, [whole], "audio-stop"))
    assert says_it((np.frombuffer(audio, "<i2") / 32767).astype(np.float32), rate)


@pytest.mark.parametrize("text", ["", "...", "😊"])
def test_h52_nothing_to_say(servers: Servers, text: str) -> None:
    audio, _ = asyncio.run(_speak(servers.wyoming_port, [Synthesize(text=text).event()], "audio-stop"))
    assert audio == b""


def test_leaving_early(servers: Servers) -> None:
    async def leave() -> None:
        async with AsyncTcpClient("127.0.0.1", servers.wyoming_port) as client:
            await client.write_event(Synthesize(text=TEXT * 30).event())
            while (event := await client.read_event()) and event.type != "audio-chunk":
                pass

    asyncio.run(leave())
    assert servers.is_quiet()
