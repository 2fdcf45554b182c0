"""One socket: carries frames between a client, the state machine and an engine session.

Knows asyncio and starlette's WebSocket; decides nothing about the protocol (``protocol.py``) and computes no audio. The
event loop never waits for the engine: engine calls return at once, engine events are handed over from its thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from starlette.websockets import WebSocket, WebSocketDisconnect

from service import protocol
from service.messages import ErrorCode, ErrorMessage, FinishedMessage
from service.metrics import StreamMeter
from service.options import ServerOptions
from service.protocol import Action, SocketAction, StreamProtocol
from tts_spec.engine.port import Engine, Event, Session
from tts_spec.types import SpeechError

logger = logging.getLogger(__name__)

_Input = TypeVar("_Input")

# The engine pauses long before this many chunks wait unsent; past it, it ignores back-pressure and memory would grow.
MAX_WAITING_CHUNKS = 256


class SocketSession:
    """Runs one stream over an accepted socket: a reader and a single writer, both gone when ``run`` returns."""

    def __init__(self, socket: WebSocket, engine: Engine, options: ServerOptions, meter: StreamMeter) -> None:
        self._socket = socket
        self._meter = meter
        self._engine = engine
        self._options = options
        self._protocol = StreamProtocol(engine.info, options)
        self._session: Session | None = None
        self._loop = asyncio.get_running_loop()
        self._outgoing: deque[SocketAction] = deque()
        self._wake = asyncio.Event()  # something to send, or the stream was abandoned
        self._waiting_chunks = 0
        self._last_active = self._loop.time()

    @property
    def id(self) -> str:
        return self._protocol.session

    @property
    def busy(self) -> bool:
        """A stream was started and is not over."""
        return self._session is not None and self._protocol.state is not protocol.State.CLOSED

    async def run(self) -> None:
        """Serve until the stream is over or the client is gone. The engine session is cancelled in every case."""
        reader = asyncio.create_task(self._read(), name=f"reader {self.id}")
        writer = asyncio.create_task(self._write(), name=f"writer {self.id}")
        idle = asyncio.create_task(self._watch_idle(), name=f"idle {self.id}")
        tasks = (reader, writer, idle)
        try:
            # The reader ends when the client leaves, the writer when the close frame is written.
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self._session is not None:
                self._session.cancel()
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            for error in results:
                if isinstance(error, Exception):
                    logger.error("stream %s broke", self.id, exc_info=error)
            self._meter.over()

    def fail(self, code: ErrorCode, message: str) -> None:
        """End the stream from our side: error message, then close."""
        self._perform(self._protocol.fail, SpeechError(code, message))

    async def _read(self) -> None:
        # Always receiving, whatever else goes on: this is how a client that leaves is noticed at once.
        while True:
            frame = await self._socket.receive()
            if frame["type"] == "websocket.disconnect":
                return
            self._last_active = self._loop.time()
            data = frame.get("text")
            self._perform(self._protocol.feed, frame["bytes"] if data is None else data)

    def _heard(self, event: Event) -> None:
        """The engine's listener; runs on the engine's thread."""
        with suppress(RuntimeError):  # the loop has ended, and the client with it
            self._loop.call_soon_threadsafe(self._on_event, event)

    def _on_event(self, event: Event) -> None:
        self._perform(self._protocol.event, event)
        if self._waiting_chunks > MAX_WAITING_CHUNKS:
            message = f"more than {MAX_WAITING_CHUNKS} chunks wait to be sent"
            self._perform(self._protocol.abandon, SpeechError(ErrorCode.INTERNAL, message))

    def _perform(self, decide: Callable[[_Input], Sequence[Action]], occasion: _Input) -> None:
        try:
            for action in decide(occasion):
                self._perform_one(action)
        except SpeechError as error:  # the engine's refusal; what followed in this batch is void
            self._perform(self._protocol.fail, error)
        except Exception:
            logger.exception("stream %s broke", self.id)
            self.fail(ErrorCode.INTERNAL, "the server made a mistake; it is in its log")

    def _perform_one(self, action: Action) -> None:
        session = self._session
        match action:
            case protocol.Open(options):
                self._session = self._engine.open(options, self._heard)
            case protocol.Cancel():
                if session is not None:
                    session.cancel()
            case protocol.Feed(text):
                assert session is not None
                self._meter.text(len(text))
                session.text(text)
            case protocol.Flush():
                assert session is not None
                session.flush()
            case protocol.End():
                assert session is not None
                session.end()
            case protocol.Drop():
                self._outgoing.clear()
                self._waiting_chunks = 0
            case _:
                if isinstance(action, protocol.Send) and isinstance(action.message, ErrorMessage):
                    self._meter.outcome(action.message.code)  # so it ends even if this can no longer be written
                self._waiting_chunks += isinstance(action, protocol.Consumed)
                self._outgoing.append(action)
                self._wake.set()

    async def _write(self) -> None:
        limit, stalled = self._options.stall_s, False
        while True:
            while not self._outgoing:
                self._wake.clear()
                await self._wake.wait()
            action = self._outgoing.popleft()
            try:
                async with asyncio.timeout(limit):
                    await self._write_one(action)
                if isinstance(action, protocol.Close):
                    return
            except TimeoutError:
                if stalled:
                    return  # no room even for the error: leave without a word
                message = f"nothing could be written for {limit:g} s; allowed: a client that reads"
                self._perform(self._protocol.abandon, SpeechError(ErrorCode.SLOW_READER, message))
                limit, stalled = self._options.linger_s, True
            except WebSocketDisconnect:
                return

    async def _write_one(self, action: SocketAction) -> None:
        """Write one frame, waiting for room; a frame is written whole or not at all."""
        match action:
            case protocol.Send(message):
                await self._socket.send_text(message.model_dump_json())
                if isinstance(message, FinishedMessage):
                    self._meter.outcome(message.reason)
            case protocol.SendAudio(data):
                await self._socket.send_bytes(data)
                self._meter.audio(len(data) / self._protocol.bytes_per_s)
            case protocol.Consumed():
                self._waiting_chunks -= 1
                if self._session is not None:
                    self._session.consumed()
            case protocol.Close(code, reason):
                await self._socket.close(code, reason)
        self._last_active = self._loop.time()

    async def _watch_idle(self) -> None:
        limit = self._options.idle_s
        while True:
            rest = self._last_active + limit - self._loop.time()
            if rest > 0:
                await asyncio.sleep(rest)
            elif self._outgoing or not self._protocol.waits_for_client:
                self._last_active = self._loop.time()
            else:
                message = f"no message for {limit:g} s; allowed: at least an empty text message in that time"
                self.fail(ErrorCode.IDLE_TIMEOUT, message)
                return
