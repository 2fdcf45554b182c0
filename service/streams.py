"""What a server serves now, over sockets and over HTTP: who is let in, who is told to go, and the end of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket

from service.actions import SocketProtocol
from service.credentials import shown_key
from service.keys import Client
from service.messages import ErrorCode
from service.metrics import Metrics
from service.options import ServerOptions
from service.session import SocketSession, Wire
from service.studio import Studio
from tts_spec.engine.port import Engine
from tts_spec.types import SpeechError

SHUTTING_DOWN = "the server is shutting down"


class Visit(Protocol):
    """A socket or a request that is being served."""

    @property
    def busy(self) -> bool:
        """It has something to finish."""

    def fail(self, error: SpeechError) -> None:
        """End it, saying why where the protocol can."""


class Streams:
    """The visits of one server."""

    def __init__(self, engine: Engine, options: ServerOptions) -> None:
        self.engine = engine
        self.options = options
        self.metrics = Metrics(engine, self.__len__)
        self.studio = Studio(engine, options, self.metrics)
        self._live: set[Visit] = set()
        self._draining = False
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return len(self._live)

    @property
    def ready(self) -> bool:
        """New streams are welcome: the engine is warm and the server is not shutting down."""
        return self.engine.ready and not self._draining

    async def serve(self, socket: WebSocket, protocol: SocketProtocol, *, key_may_follow: bool = False) -> None:
        """Accept one socket and stay with it until it is over.

        ``key_may_follow``: a client that shows no key may still do so in a message.
        """
        if not self.is_welcome(socket):
            await socket.close()  # before the handshake, so as HTTP 403: a page of another site learns nothing
            return
        await socket.accept()
        keys, key = self.studio.keys, shown_key(socket.headers, socket.query_params)

        def who() -> Client | None:
            return None if key is None and key_may_follow and keys.asks else keys.client(key)

        await self._stay(SocketSession(socket, protocol, self.studio), who)

    async def serve_trusted(self, wire: Wire, protocol: SocketProtocol) -> None:
        """The same for a connection of a protocol that knows neither keys nor web pages."""
        await self._stay(SocketSession(wire, protocol, self.studio), lambda: self.studio.keys.anyone)

    async def _stay(self, session: SocketSession, who: Callable[[], Client | None]) -> None:
        """Run ``session``, or tell it why not. ``who``: is there (None: will be told in a message); raises ``SpeechError``."""
        try:
            self.admit()
            if (client := who()) is not None:
                session.login(client)
        except SpeechError as error:
            session.fail(error)
            await session.run()
            return
        with self.visit(session):
            await session.run()

    def admit(self) -> None:
        """Raises ``SpeechError`` when the server takes no more."""
        if self._draining:
            raise SpeechError(ErrorCode.SHUTTING_DOWN, SHUTTING_DOWN)
        most = self.options.max_sessions + self.options.max_waiting  # which of them are served first, the engine knows
        if len(self._live) >= most:
            raise SpeechError(
                ErrorCode.OVERLOADED,
                f"{len(self._live)} sessions are being served or wait; allowed: {most}; try again later",
            )

    @contextmanager
    def visit(self, visit: Visit) -> Iterator[None]:
        """Count it while the block runs; the shutdown waits for it."""
        self._live.add(visit)
        self._empty.clear()
        try:
            yield
        finally:
            self._live.discard(visit)
            if not self._live:
                self._empty.set()

    async def drain(self, seconds: float) -> None:
        """Let started streams finish for at most ``seconds``, then end them; idle sockets end at once."""
        self._draining = True
        self._end(lambda visit: not visit.busy, SHUTTING_DOWN)
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            self._end(lambda _: True, f"{SHUTTING_DOWN} and waited {seconds:g} s")
            with suppress(TimeoutError):  # the last words need a moment to be written
                async with asyncio.timeout(self.options.linger_s):
                    await self._empty.wait()
        self.studio.close()

    def _end(self, chosen: Callable[[Visit], bool], message: str) -> None:
        for visit in list(self._live):
            if chosen(visit):
                visit.fail(SpeechError(ErrorCode.SHUTTING_DOWN, message))

    def is_welcome(self, socket: HTTPConnection) -> bool:
        """Browsers let any page open a socket to any host, loopback too, but say where the page came from."""
        origin = socket.headers.get("origin")
        if origin is None or origin in self.options.allowed_origins:
            return True
        try:
            return urlsplit(origin).netloc == socket.headers.get("host")
        except ValueError:  # no URL
            return False
