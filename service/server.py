"""Starts and stops the server: sockets, signals, the deadline of the shutdown. Knows uvicorn; owns no engine."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import uvicorn

from service.app import create_app
from service.loop_lag import watch_lag
from service.options import ServerOptions
from service.server_socket import listen
from service.streams import Streams
from service.wyoming_server import wyoming_running
from tts_spec.engine.port import Engine
from tts_spec.types import SpeechError

# Messages over options.max_message_bytes get an error message; over this the socket is just closed with 1009.
HARD_MESSAGE_BYTES = 2 * 1024 * 1024
PING_S = 20.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Server(uvicorn.Server):
    """uvicorn with our shutdown: streams may finish first. Signals are left to ``serve``."""

    def __init__(self, config: uvicorn.Config, streams: Streams) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        self._streams = streams

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # 1. No new connections. 2. Streams finish or, at the deadline, are told. 3. uvicorn closes what is left.
        for server in self.servers:
            server.close()
        await self._streams.drain(self._streams.options.drain_s)
        await super().shutdown(sockets)


class Address(str):
    """Where the server listens, as a URL."""

    wyoming_port: int | None

    def __new__(cls, url: str, wyoming_port: int | None) -> Address:
        self = super().__new__(cls, url)
        self.wyoming_port = wyoming_port
        return self


@asynccontextmanager
async def running(engine: Engine, options: ServerOptions) -> AsyncIterator[Address]:
    """The server while the block runs; gives its address, e.g. ``http://127.0.0.1:8000``, once it really listens.

    Raises ``SpeechError`` when a TLS file is not there, ``OSError`` when the address cannot be had. The engine stays the caller's.
    """
    streams = Streams(engine, options)
    config = uvicorn.Config(
        create_app(streams),
        http="h11",
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        ws_max_size=max(HARD_MESSAGE_BYTES, 2 * options.max_message_bytes),
        ws_ping_interval=PING_S,
        # A reader that is merely slow is the writer's business; this only finds dead peers.
        ws_ping_timeout=PING_S + 2 * options.stall_s,
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,  # a key may stand in a URL
        server_header=False,
        timeout_graceful_shutdown=1,
        ssl_certfile=_file("tls_certificate", options.tls_certificate),
        ssl_keyfile=_file("tls_key", options.tls_key),
    )
    scheme = "http" if options.tls_certificate is None else "https"
    server = _Server(config, streams)
    with listen(options.host, options.port, options) as listener:
        host, port = listener.getsockname()[:2]
        task = asyncio.create_task(server.serve([listener]), name="server")
        lag = asyncio.create_task(watch_lag(streams.metrics.loop_lag_s.observe), name="loop lag")
        ready = asyncio.create_task(server.listening.wait())
        await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
        try:
            if task.done():
                await task  # raises what stopped it
            async with wyoming_running(streams) as wyoming_port:
                yield Address(
                    f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}", wyoming_port
                )
        finally:
            ready.cancel()
            lag.cancel()
            server.should_exit = True
            await task


async def serve_until_stopped(engine: Engine, options: ServerOptions) -> None:
    """Serve until SIGINT or SIGTERM, then drain. A second signal ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
        stop.set()

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal)
    async with running(engine, options) as address:
        print(f"Listening on {address} (Ctrl+C stops)", flush=True)
        if address.wyoming_port is not None:
            print(f"Wyoming on port {address.wyoming_port}", flush=True)
        await stop.wait()
        print("Stopping: running streams may finish", flush=True)


def serve(engine: Engine, options: ServerOptions) -> None:
    """Serve until stopped by a signal. The engine is closed at the end. Raises ``OSError`` for an address in use."""
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(serve_until_stopped(engine, options))
    finally:
        engine.close()


def _file(name: str, path: str | None) -> str | None:
    if path is not None and not Path(path).is_file():
        raise SpeechError("invalid_value", f"{name} is {path!r}; allowed: a PEM file", name)
    return path
