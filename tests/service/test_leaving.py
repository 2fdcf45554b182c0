"""Clients that leave, read slowly, say nothing or are too many; and a server that stops."""

from __future__ import annotations

import asyncio
import random
import socket as sockets
from typing import Any
from urllib.parse import urlsplit

import pytest
import websockets

from service.options import ServerOptions
from service.server_socket import SEND_BUFFER_BYTES, listen
from tests.service.client import PATIENCE_S, connect, hear, send, speak, stream_url
from tests.service.fake_engine import FRAME, MAX_OUTSTANDING, FakeEngine
from tts_spec.types import SpeechError

pytestmark = pytest.mark.anyio
START: dict[str, Any] = {"type": "start"}
LONG = {"type": "text", "text": "word " * 2000}  # 28,000 frames: 34 MB


async def happens(fake: FakeEngine, condition: Any) -> bool:
    return await asyncio.to_thread(fake.wait_for, condition)


async def test_e34_stops_generating_within_one_chunk_of_a_disconnect(fake: FakeEngine) -> None:
    async with stream_url(fake) as url, connect(url) as socket:
        await send(socket, START, LONG)
        await hear(socket, until="audio")
        fake.hold()
        chunks = fake.sessions[0].chunks
        socket.transport.abort()  # no close frame, as when a phone loses its network
        assert await happens(fake, lambda: fake.sessions[0].cancelled)
        fake.release()
        await speak(url, "Someone else")  # the engine has gone round meanwhile
        assert fake.sessions[0].chunks <= chunks + 1


async def test_e34_notices_a_disconnect_while_waiting_for_text(fake: FakeEngine) -> None:
    async with stream_url(fake) as url, connect(url) as socket:
        await send(socket, START)
        await hear(socket, until="started")
        assert fake.active == 1
        socket.transport.abort()
        assert await happens(fake, lambda: fake.active == 0)


async def test_e34_notices_a_close_frame_between_sends(fake: FakeEngine) -> None:
    async with stream_url(fake) as url:
        async with connect(url) as socket:
            await send(socket, START, LONG)
            await hear(socket, until="audio")
            fake.hold()  # nothing is being sent when the close frame comes
        assert await happens(fake, lambda: fake.sessions[0].cancelled)
        fake.release()


async def test_e35_e36_no_slot_is_lost_whenever_clients_leave(fake: FakeEngine) -> None:
    rng = random.Random(0)
    async with stream_url(fake, max_sessions=4) as url:

        async def visit() -> None:
            async with connect(url) as socket:
                if rng.random() < 0.8:
                    await send(socket, START, {"type": "text", "text": "word " * rng.randint(0, 20)})
                    if rng.random() < 0.5:
                        await hear(socket, until="started")
                if rng.random() < 0.5:
                    await send(socket, {"type": rng.choice(["flush", "end", "cancel", "start"])})
                if rng.random() < 0.5:
                    socket.transport.abort()

        for _ in range(30):
            await asyncio.gather(visit(), visit())
        assert await happens(fake, lambda: fake.active == 0)
        results = await asyncio.gather(*(speak(url, "Still here") for _ in range(4)))
    assert [each.close_code for each in results] == [1000] * 4


async def test_e36_over_the_limit_is_told_so_and_the_others_go_on(fake: FakeEngine) -> None:
    async with stream_url(fake, max_sessions=1, max_waiting=1) as url, connect(url) as one, connect(url) as two:
        for socket in (one, two):
            await send(socket, START)
            await hear(socket, until="started")
        refused = await asyncio.gather(*(speak(url, "Let me in") for _ in range(20)))
        for each in refused:
            assert each.one("error")["code"] == "overloaded"
            assert "2 sessions are being served or wait; allowed: 2" in each.one("error")["message"]
            assert each.close_code == 1013
        for socket in (one, two):
            await send(socket, {"type": "text", "text": "Fine"}, {"type": "end"})
            assert (await hear(socket)).close_code == 1000
    assert len(fake.sessions) == 2


async def test_f42_pings_are_answered_while_the_engine_works(fake: FakeEngine) -> None:
    async with stream_url(fake) as url, connect(url) as socket:
        await send(socket, START, LONG)
        await hear(socket, until="audio")
        fake.hold()  # a model pass that does not come back
        assert await happens(fake, lambda: fake.sessions[0].chunks > 0)
        async with asyncio.timeout(PATIENCE_S):
            await (await socket.ping())
            async with connect(url):
                pass  # and newcomers are let in
        fake.release()


async def _lazy(url: str) -> websockets.ClientConnection:
    """A client whose socket holds little, so that not reading is felt by the server at once."""
    address = urlsplit(url)
    sock = sockets.socket()
    sock.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (address.hostname, address.port))
    return await websockets.connect(url, sock=sock, compression=None, max_queue=1)


async def test_i61_slow_reader_pauses_its_own_generation_only(fake: FakeEngine) -> None:
    async with stream_url(fake) as url:
        text = "word " * 200
        wanted = await speak(url, text, seed=3)
        socket = await _lazy(url)
        await send(socket, START | {"seed": 3}, {"type": "text", "text": text}, {"type": "end"})
        slow = lambda: fake.sessions[1]  # noqa: E731
        assert await happens(fake, lambda: len(fake.sessions) > 1 and slow().outstanding == MAX_OUTSTANDING)
        assert (await speak(url, text, seed=4)).close_code == 1000
        assert not slow().over
        assert slow().frames * FRAME * 2 < len(wanted.audio) / 2
        heard = await hear(socket)
    assert heard.audio == wanted.audio
    assert slow().most_outstanding == MAX_OUTSTANDING


async def test_i61_a_reader_that_never_reads_is_closed_with_the_reason(fake: FakeEngine) -> None:
    async with stream_url(fake, stall_s=0.2, linger_s=PATIENCE_S) as url:
        socket = await _lazy(url)
        await send(socket, START, LONG)
        assert await happens(fake, lambda: bool(fake.sessions) and fake.sessions[0].cancelled)
        heard = await hear(socket)
    assert heard.one("error")["code"] == "slow_reader"
    assert heard.close_code == 1008
    assert fake.sessions[0].frames < 14_000


async def test_i61_memory_is_bounded_even_if_the_engine_does_not_pause() -> None:
    fake = FakeEngine(ignore_outstanding=True)
    try:
        async with stream_url(fake) as url:
            socket = await _lazy(url)
            await send(socket, START, LONG)
            assert await happens(fake, lambda: bool(fake.sessions) and fake.sessions[0].cancelled)
            heard = await hear(socket)
        assert (heard.one("error")["code"], heard.close_code) == ("internal", 1011)
    finally:
        fake.close()


@pytest.mark.parametrize("messages", [[], [START], [START, {"type": "text", "text": "and"}]])
async def test_a_silent_client_is_closed(fake: FakeEngine, messages: list[dict[str, Any]]) -> None:
    async with stream_url(fake, idle_s=0.05) as url, connect(url) as socket:
        await send(socket, *messages)
        heard = await hear(socket)
    assert (heard.one("error")["code"], heard.close_code) == ("idle_timeout", 1008)
    assert fake.active == 0


async def test_stopping_lets_streams_finish(fake: FakeEngine) -> None:
    fake.hold()
    server = stream_url(fake, drain_s=20.0)
    url = await server.__aenter__()
    async with connect(url) as socket, connect(url) as idle:
        await send(socket, START, {"type": "text", "text": "To the end"}, {"type": "end"})
        await hear(socket, until="started")
        stopping = asyncio.create_task(server.__aexit__(None, None, None))
        told = await hear(idle)  # proof that the server is stopping
        assert (told.one("error")["code"], told.close_code) == ("shutting_down", 1001)
        fake.release()
        heard = await hear(socket)
        await stopping
    assert heard.one("end")["reason"] == "complete"
    with pytest.raises(OSError):  # noqa: PT011
        await speak(url, "Anyone?")


async def test_stopping_has_one_deadline(fake: FakeEngine) -> None:
    server = stream_url(fake, drain_s=0.1)
    url = await server.__aenter__()
    async with connect(url) as socket:
        await send(socket, START, {"type": "text", "text": "never ended"})
        await hear(socket, until="started")
        stopping = asyncio.create_task(server.__aexit__(None, None, None))
        heard = await hear(socket)
        await stopping
    assert (heard.one("error")["code"], heard.close_code) == ("shutting_down", 1001)
    assert fake.active == 0


async def test_the_kernel_sends_at_once_and_holds_little() -> None:
    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        assert sock.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY)
        size = sock.getsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF)
        writer.write(str(size).encode())
        writer.close()

    listener = listen("127.0.0.1", 0, ServerOptions())
    async with await asyncio.start_server(talk, sock=listener):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        assert int(await reader.read()) <= 2 * SEND_BUFFER_BYTES  # the kernel doubles it for its own needs
        writer.close()
        await writer.wait_closed()


async def test_who_is_refused_by_the_engine_is_told_when_to_come_again(fake: FakeEngine) -> None:
    fake.refusal = SpeechError("overloaded", "no room", None, 1500)
    async with stream_url(fake) as url:
        refused = await speak(url, "Let me in")
    assert (refused.one("error")["code"], refused.one("error")["retry_after_ms"]) == ("overloaded", 1500)
    assert refused.close_code == 1013
