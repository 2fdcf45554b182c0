"""One socket: carries frames between a client, a protocol's state machine and the streams it opens.

Knows asyncio and starlette's WebSocket, or what behaves like one (``Wire``); decides nothing about the protocol and computes
no audio. The event loop never waits for the engine: engine calls return at once, what is spoken is handed over from its thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from starlette.websockets import WebSocketDisconnect

from service import actions
from service.actions import Action, SocketAction, SocketProtocol
from service.keys import Client
from service.messages import ErrorCode
from service.metrics import StreamMeter
from service.speech import Piece, Speech
from service.studio import Studio
from tts_spec.types import SpeechError

logger = logging.getLogger(__name__)

_Input = TypeVar("_Input")

# The engine pauses long before this many pieces wait unsent; past it, it ignores back-pressure and memory would grow.
MAX_WAITING_PIECES = 256


class Wire(Protocol):
    """What is used of a WebSocket (starlette's); frames are ASGI's."""

    async def receive(self) -> MutableMapping[str, Any]: ...
    async def send_text(self, data: str) -> None: ...
    async def send_bytes(self, data: bytes) -> None: ...
    async def close(self, code: int, reason: str) -> None: ...


class SocketSession:
    """Runs one protocol over an accepted socket: a reader and a single writer, both gone when ``run`` returns."""

    def __init__(self, socket: Wire, protocol: SocketProtocol, studio: Studio) -> None:
        self._socket = socket
        self._protocol = protocol
        self._studio = studio
        self._options = studio.options
        self._client: Client | None = None
        self._speeches: dict[str, Speech] = {}
        self._meters = {"": StreamMeter(studio.metrics)}  # of a stream without a name, and of sockets that begin none
        self._loop = asyncio.get_running_loop()
        self._outgoing: deque[SocketAction] = deque()
        self._wake = asyncio.Event()  # something to send, or the socket was abandoned
        self._waiting_pieces = 0
        self._last_active = self._loop.time()

    @property
    def id(self) -> str:
        return self._protocol.session

    @property
    def busy(self) -> bool:
        """A stream was started and is not over."""
        return self._protocol.busy

    async def run(self) -> None:
        """Serve until the protocol closes or the client is gone. Every stream is cancelled in every case."""
        reader = asyncio.create_task(self._read(), name=f"reader {self.id}")
        writer = asyncio.create_task(self._write(), name=f"writer {self.id}")
        idle = asyncio.create_task(self._watch_idle(), name=f"idle {self.id}")
        tasks = (reader, writer, idle)
        try:
            # The reader ends when the client leaves, the writer when the close frame is written.
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for speech in self._speeches.values():
                speech.cancel()
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            for error in results:
                if isinstance(error, Exception):
                    logger.error("socket %s broke", self.id, exc_info=error)
            for meter in self._meters.values():
                meter.over()
            if self._client is not None:
                self._client.leave()

    def login(self, client: Client) -> None:
        """Say who it is; without this only a message can (``actions.Authenticate``). Raises ``SpeechError`` for one session too many."""
        client.enter()
        if self._client is not None:
            self._client.leave()
        self._client = client

    def fail(self, error: SpeechError) -> None:
        """End the socket from our side: the error, then close."""
        self._perform(self._protocol.fail, error)

    async def _read(self) -> None:
        # Always receiving, whatever else goes on: this is how a client that leaves is noticed at once.
        while True:
            frame = await self._socket.receive()
            if frame["type"] == "websocket.disconnect":
                return
            self._last_active = self._loop.time()
            data = frame.get("text")
            self._perform(self._protocol.feed, frame["bytes"] if data is None else data)

    def _heard(self, key: str, event: Piece | SpeechError) -> None:
        self._perform(partial(self._protocol.event, key=key), event)
        if self._waiting_pieces > MAX_WAITING_PIECES:
            message = f"more than {MAX_WAITING_PIECES} pieces wait to be sent"
            self._perform(self._protocol.abandon, SpeechError(ErrorCode.INTERNAL, message))

    def _perform(self, decide: Callable[[_Input], Sequence[Action]], occasion: _Input) -> None:
        action: Action | None = None
        try:
            for action in decide(occasion):
                self._perform_one(action)
        except SpeechError as error:  # a refusal; what followed in this batch is void
            key = None if action is None or isinstance(action, actions.Close) else getattr(action, "key", None)
            self._perform(partial(self._protocol.fail, key=key), error)
        except Exception:
            logger.exception("socket %s broke", self.id)
            self.fail(SpeechError(ErrorCode.INTERNAL, "the server made a mistake; it is in its log"))

    def _perform_one(self, action: Action) -> None:
        match action:
            case actions.Authenticate(api_key):
                self.login(self._studio.keys.client(api_key))
            case actions.Open(options, audio_format, key, tempo):
                if self._client is None:
                    self.login(self._studio.keys.client(None))
                if key:
                    self._meters.pop("", None)
                    self._meters[key] = StreamMeter(self._studio.metrics)
                self._speeches[key] = self._studio.speak(options, audio_format, partial(self._heard, key), tempo)
            case actions.Feed(text, key):
                assert self._client is not None
                self._client.spend(len(text))
                self._meters[key].text(len(text))
                self._speeches[key].text(text)
            case actions.Flush(key):
                self._speeches[key].flush()
            case actions.End(key):
                self._speeches[key].end()
            case actions.Cancel(key):
                if speech := self._speeches.pop(key, None):
                    speech.cancel()
            case actions.Drop(key):
                self._drop(key)
            case _:
                if isinstance(action, actions.Over) and action.outcome in set(ErrorCode) and action.key in self._meters:
                    self._meters[action.key].outcome(action.outcome)  # so it ends even if this can no longer be written
                self._waiting_pieces += isinstance(action, actions.Consumed)
                self._outgoing.append(action)
                self._wake.set()

    def _drop(self, key: str | None) -> None:
        kept = [each for each in self._outgoing if key is not None and getattr(each, "key", None) != key]
        self._outgoing = deque(kept)
        self._waiting_pieces = sum(isinstance(each, actions.Consumed) for each in kept)

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
                if isinstance(action, actions.Close):
                    return
            except TimeoutError:
                if stalled:
                    return  # no room even for the error: leave without a word
                message = f"nothing could be written for {limit:g} s; allowed: a client that reads"
                self._perform(self._protocol.abandon, SpeechError(ErrorCode.SLOW_READER, message))
                limit, stalled = self._options.linger_s, True
            except (WebSocketDisconnect, OSError):
                return

    async def _write_one(self, action: SocketAction) -> None:
        """Write one frame, waiting for room; a frame is written whole or not at all."""
        match action:
            case actions.Send(message, key, seconds):
                await self._socket.send_text(message.model_dump_json())
                self._count(key, seconds)
            case actions.SendAudio(data, seconds, key):
                await self._socket.send_bytes(data)
                self._count(key, seconds)
            case actions.Consumed(key):
                self._waiting_pieces -= 1
                if speech := self._speeches.get(key):
                    speech.consumed()
            case actions.Over(outcome, key):
                self._speeches.pop(key, None)
                if meter := self._meters.pop(key, None):
                    meter.outcome(outcome)
                    meter.over()
            case actions.Close(code, reason):
                await self._socket.close(code, reason)
        self._last_active = self._loop.time()

    def _count(self, key: str, seconds: float) -> None:
        if seconds and (meter := self._meters.get(key)):
            meter.audio(seconds)

    async def _watch_idle(self) -> None:
        while True:
            limit = self._protocol.idle_s
            rest = self._last_active + limit - self._loop.time()
            if rest > 0:
                await asyncio.sleep(rest)
            elif self._outgoing or not self._protocol.waits_for_client:
                self._last_active = self._loop.time()
            else:
                message = f"no message for {limit:g} s; allowed: at least an empty text message in that time"
                self.fail(SpeechError(ErrorCode.IDLE_TIMEOUT, message))
                return
