"""Speaks over this project's own protocol (``service/protocol.md``): one WebSocket for each utterance."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import websockets
from websockets.asyncio.client import ClientConnection

from tts_spec.bench.latency.playback import SECOND
from tts_spec.bench.latency.target import Clock, sleep_until
from tts_spec.bench.latency.utterance import Leave, Outcome, Request, Utterance

REFUSALS = ("overloaded", "shutting_down")
FREE_WITHIN_S = 30.0
POLL_S = 0.002


class NativeTarget:
    """See ``Target``. ``active`` asks the server how many sessions hold resources; without it ``free_ns`` stays None."""

    leaves: tuple[Leave, ...] = (Leave.CANCEL, Leave.DISCONNECT)

    def __init__(
        self, url: str, active: Callable[[], Awaitable[int]] | None = None, clock: Clock = time.perf_counter_ns
    ) -> None:
        """``url`` is that of the stream: ``ws://host:port/v1/stream``."""
        self._url = url
        self._active = active
        self._clock = clock
        self._open = 0  # streams asked for and neither over nor left, as far as we know

    async def close(self) -> None:
        """See ``Target.close``: every utterance has its own socket."""

    async def speak(self, utterance: Utterance) -> None:
        """See ``Target.speak``. Connecting and ``start`` come before t0, as in nari's harness."""
        try:
            # proxy=None: a proxy of the environment would be what is measured.
            async with websockets.connect(self._url, compression=None, proxy=None, max_size=None) as socket:
                await self._converse(_Conversation(socket, utterance, self._clock))
        except (OSError, TimeoutError, websockets.WebSocketException) as error:
            if utterance.outcome is Outcome.UNFINISHED:
                utterance.fail(f"{type(error).__name__}: {error}")

    async def _converse(self, conversation: _Conversation) -> None:
        utterance = conversation.utterance
        self._open += 1
        try:
            await conversation.start()
            if utterance.outcome is Outcome.UNFINISHED:
                await conversation.run()
        finally:
            self._open -= 1
        if utterance.left_ns is not None and self._active is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(FREE_WITHIN_S):
                    # The server's gauge counts everybody: free when it counts no more than we have open.
                    while await self._active() > self._open:  # noqa: ASYNC110 - the event is in the server
                        await asyncio.sleep(POLL_S)
                    utterance.free_ns = self._clock()


class _Conversation:
    """One socket."""

    def __init__(self, socket: ClientConnection, utterance: Utterance, clock: Clock) -> None:
        self.utterance = utterance
        self._socket = socket
        self._clock = clock

    async def start(self) -> None:
        """Open the stream and wait for ``started``, or for what there is instead."""
        with suppress(websockets.ConnectionClosed):  # refused already: what was said before the close can still be read
            await self._send(_start(self.utterance.request))
        data = await self._socket.recv()
        message = json.loads(data)
        if message["type"] == "started":
            self.utterance.sample_rate = message["sample_rate"]
        else:
            self._end(message)

    async def run(self) -> None:
        """Send the text and hear everything."""
        self.utterance.sent_ns = self._clock()
        tasks = [asyncio.create_task(self._send_text(self.utterance.sent_ns))]
        try:
            while self.utterance.ended_ns is None:
                data = await self._socket.recv()
                now = self._clock()
                if isinstance(data, bytes):
                    self.utterance.hear(now, data)
                    if len(tasks) == 1 and self.utterance.request.leave is not None:
                        tasks.append(asyncio.create_task(self._leave(self.utterance.request.leave)))
                    continue
                message = json.loads(data)
                if message["type"] in ("end", "error"):
                    self.utterance.ended_ns = now
                    self._end(message)
        except websockets.ConnectionClosed:
            if self.utterance.left_ns is None:
                raise
            self.utterance.outcome = Outcome.LEFT
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _end(self, message: dict[str, Any]) -> None:
        if message["type"] == "error":
            self.utterance.fail(f"{message['code']}: {message['message']}", refused=message["code"] in REFUSALS)
        elif message["type"] == "end":
            self.utterance.outcome = Outcome.COMPLETE if message["reason"] == "complete" else Outcome.LEFT
        else:
            self.utterance.fail(f"expected started, got {message['type']}")

    async def _send_text(self, began_ns: int) -> None:
        with suppress(websockets.ConnectionClosed):  # the receiver says why
            for after_s, piece in self.utterance.request.pieces():
                await sleep_until(began_ns + round(after_s * SECOND), self._clock)
                await self._send({"type": "text", "text": piece})
            await self._send({"type": "end"})

    async def _leave(self, how: Leave) -> None:
        await asyncio.sleep(self.utterance.request.leave_after_s)
        self.utterance.left_ns = self._clock()
        if how is Leave.CANCEL:
            with suppress(websockets.ConnectionClosed):
                await self._send({"type": "cancel"})
        else:
            self._socket.transport.abort()  # no close frame, as when a phone loses its network

    async def _send(self, message: dict[str, Any]) -> None:
        await self._socket.send(json.dumps(message))


def _start(request: Request) -> dict[str, Any]:
    start: dict[str, Any] = {"type": "start", "seed": request.seed}
    if request.voice is not None:
        start["voice"] = request.voice
    if request.drafter is not None:
        start["drafter"] = request.drafter
    return start
