"""Speaks over ElevenLabs' ``stream-input`` socket as its clients do, 16-bit PCM in base64. Knows no server's insides."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from contextlib import suppress

import websockets
from websockets.asyncio.client import ClientConnection

from tts_spec.bench.latency.playback import SECOND
from tts_spec.bench.latency.target import Clock, sleep_until
from tts_spec.bench.latency.utterance import Leave, Outcome, Utterance

REFUSALS = ("system_busy", "too_many_concurrent_requests", "shutting_down")


class ElevenLabsTarget:
    """See ``Target``. The socket has one stream and no cancel: whoever leaves drops the connection."""

    leaves: tuple[Leave, ...] = (Leave.DISCONNECT,)

    def __init__(self, url: str, sample_rate: int = 24_000, clock: Clock = time.perf_counter_ns) -> None:
        """``url`` is the server's: ``ws://host:port``."""
        self._url = url
        self._sample_rate = sample_rate
        self._clock = clock

    async def close(self) -> None:
        """See ``Target.close``: every utterance has its own socket."""

    async def speak(self, utterance: Utterance) -> None:
        """See ``Target.speak``. Connecting comes before t0, as with the native protocol."""
        request = utterance.request
        url = (
            f"{self._url}/v1/text-to-speech/{request.voice or 'alloy'}/stream-input"
            f"?output_format=pcm_{self._sample_rate}&seed={request.seed % 2**32}"
        )
        utterance.sample_rate = self._sample_rate
        try:
            # proxy=None: a proxy of the environment would be what is measured.
            async with websockets.connect(url, compression=None, proxy=None) as socket:
                await socket.send(json.dumps({"text": " ", "voice_settings": None}))
                await self._converse(socket, utterance)
        except (OSError, TimeoutError, websockets.WebSocketException) as error:
            if utterance.outcome is Outcome.UNFINISHED:
                utterance.fail(f"{type(error).__name__}: {error}")

    async def _converse(self, socket: ClientConnection, utterance: Utterance) -> None:
        utterance.sent_ns = self._clock()
        sending = asyncio.create_task(self._send_text(socket, utterance))
        leave = utterance.request.leave
        try:
            async with asyncio.timeout_at(None) as patience:
                while utterance.outcome is Outcome.UNFINISHED:
                    frame = json.loads(await socket.recv())
                    now = self._clock()
                    if "error" in frame:
                        utterance.fail(f"{frame['error']}: {frame['message']}", refused=frame["error"] in REFUSALS)
                    elif frame["isFinal"]:
                        utterance.ended_ns, utterance.outcome = now, Outcome.COMPLETE
                    elif frame["audio"]:
                        first = not utterance.arrivals
                        utterance.hear(now, base64.b64decode(frame["audio"]))
                        if first and leave is not None:
                            patience.reschedule(asyncio.get_running_loop().time() + utterance.request.leave_after_s)
        except TimeoutError:
            utterance.left_ns, utterance.outcome = self._clock(), Outcome.LEFT
            socket.transport.abort()
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send_text(self, socket: ClientConnection, utterance: Utterance) -> None:
        assert utterance.sent_ns is not None
        with suppress(websockets.ConnectionClosed):  # the receiver says why
            for after_s, piece in utterance.request.pieces():
                await sleep_until(utterance.sent_ns + round(after_s * SECOND), self._clock)
                await socket.send(json.dumps({"text": piece, "try_trigger_generation": True}))
            await socket.send(json.dumps({"text": ""}))
