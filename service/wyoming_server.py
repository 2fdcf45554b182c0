"""Wyoming on the wire: a line of JSON for each event, with data and payload behind it, over plain TCP.

Knows asyncio streams; what events mean is in ``wyoming.py``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from service.server_socket import listen
from service.streams import Streams
from service.wyoming import WyomingProtocol

HEADER_BYTES = 65_536


class _FramingError(Exception):
    """What came is no event."""


class TcpWire:
    """The side of a WebSocket that ``SocketSession`` uses, over a TCP connection that speaks Wyoming."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rate: int, max_bytes: int) -> None:
        """``rate``: of the audio sent, in Hz; ``max_bytes``: of data and of payload of one event received."""
        self._reader = reader
        self._writer = writer
        self._max_bytes = max_bytes
        self._format = {"rate": rate, "width": 2, "channels": 1}

    async def receive(self) -> dict[str, Any]:
        """The next event as a WebSocket's message would be, or the disconnection."""
        try:
            event = await self._read()
        except (_FramingError, ValueError, OSError, asyncio.IncompleteReadError):
            event = None
        if event is None:
            return {"type": "websocket.disconnect"}
        return {"type": "websocket.receive", "text": event}

    async def send_text(self, data: str) -> None:
        """An event without payload."""
        self._writer.write(data.encode() + b"\n")
        await self._writer.drain()

    async def send_bytes(self, data: bytes) -> None:
        """Audio."""
        header = {"type": "audio-chunk", "data": self._format, "payload_length": len(data)}
        self._writer.write(json.dumps(header).encode() + b"\n" + data)
        await self._writer.drain()

    async def close(self, code: int, reason: str) -> None:
        """After what was sent."""
        self._writer.close()

    async def _read(self) -> str | None:
        line = await self._reader.readline()
        if not line:
            return None
        header = json.loads(line)
        if not isinstance(header, dict):
            raise _FramingError
        data = header.get("data") or {}
        if length := self._length(header, "data_length"):
            data = {**data, **json.loads(await self._reader.readexactly(length))}
        if length := self._length(header, "payload_length"):
            await self._reader.readexactly(length)  # audio for other kinds of servers
        return json.dumps({"type": header.get("type"), "data": data})

    def _length(self, header: dict[str, Any], name: str) -> int:
        length = header.get(name) or 0
        if not isinstance(length, int) or not 0 <= length <= self._max_bytes:
            raise _FramingError
        return length


@asynccontextmanager
async def wyoming_running(streams: Streams) -> AsyncIterator[int | None]:
    """Serve Wyoming while the block runs; gives its port, None where it is off. Raises ``OSError`` for an address in use."""
    options = streams.options
    if options.wyoming_port is None:
        yield None
        return
    rate = streams.engine.info.sample_rate

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = TcpWire(reader, writer, rate, options.max_body_bytes)
        try:
            await streams.serve_trusted(wire, WyomingProtocol(streams.studio.voices, rate, options))
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    with listen(options.host, options.wyoming_port, options) as listener:
        server = await asyncio.start_server(serve, sock=listener, limit=HEADER_BYTES)
        try:
            yield listener.getsockname()[1]
        finally:
            server.close()  # no new connections; those that are open are drained with the rest
