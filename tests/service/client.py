"""A small client for the tests: sends dicts, collects what the server says until it closes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import websockets
from websockets.asyncio.client import ClientConnection

from service.messages import SERVER_MESSAGES
from service.options import ServerOptions
from service.server import running
from tts_spec.engine.port import Engine

PATIENCE_S = 120.0  # a test waits so long for what must happen: only a fault takes longer, however busy the machine
ROUNDING = 33  # of 32768, as tests/engine/test_stream.py allows


@asynccontextmanager
async def stream_url(engine: Engine, **options: Any) -> AsyncIterator[str]:
    """The real server on a free port; gives the address of its stream."""
    defaults: dict[str, Any] = {"port": 0, "drain_s": 0.05}
    async with running(engine, ServerOptions(**(defaults | options))) as address:
        yield address.replace("http", "ws", 1) + "/v1/stream"


@asynccontextmanager
async def connect(url: str, **options: Any) -> AsyncIterator[ClientConnection]:
    defaults: dict[str, Any] = {"compression": None, "open_timeout": PATIENCE_S}
    async with websockets.connect(url, **(defaults | options)) as socket:
        yield socket


def http_client(stream: str = "", **options: Any) -> httpx.AsyncClient:
    """A client of the server with this stream. httpx by itself gives up after five seconds, and uses a connection again just when the
    server, which keeps it for five seconds too, closes it."""
    base = stream.replace("ws", "http", 1).removesuffix("/v1/stream")
    limits = httpx.Limits(keepalive_expiry=1.0)
    return httpx.AsyncClient(**({"base_url": base, "timeout": PATIENCE_S, "limits": limits} | options))


async def send(socket: ClientConnection, *messages: dict[str, Any]) -> None:
    """Send the messages, as far as the server still listens; ``hear`` then says why it does not."""
    with suppress(websockets.ConnectionClosed):
        for message in messages:
            await socket.send(json.dumps(message))


@dataclass
class Heard:
    """Everything the server said: frames in order (dict or bytes) and the close code."""

    frames: list[dict[str, Any] | bytes] = field(default_factory=list)
    close_code: int | None = None
    close_reason: str = ""

    def all(self, kind: str) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if isinstance(frame, dict) and frame["type"] == kind]

    def one(self, kind: str) -> dict[str, Any]:
        (frame,) = self.all(kind)
        return frame

    @property
    def audio(self) -> bytes:
        return b"".join(frame for frame in self.frames if isinstance(frame, bytes))

    @property
    def samples(self) -> np.ndarray:
        return np.frombuffer(self.audio, dtype="<i2") / 32767.0


async def hear(socket: ClientConnection, until: str | None = None) -> Heard:
    """Read until the server closes, or up to the first message of type ``until`` ("audio" = a binary frame)."""
    heard = Heard()
    try:
        while True:
            data = await socket.recv()
            if isinstance(data, bytes):
                heard.frames.append(data)
                kind = "audio"
            else:
                SERVER_MESSAGES.validate_json(data)  # nothing undocumented ever leaves the server
                heard.frames.append(json.loads(data))
                kind = heard.frames[-1]["type"]
            if kind == until:
                return heard
    except websockets.ConnectionClosed as closed:
        if closed.rcvd is None:
            raise
        heard.close_code, heard.close_reason = closed.rcvd.code, closed.rcvd.reason
    return heard


async def speak(url: str, text: str, **start: Any) -> Heard:
    """One utterance from start to close."""
    async with connect(url) as socket:
        await send(socket, {"type": "start", **start}, {"type": "text", "text": text}, {"type": "end"})
        return await hear(socket)


def loudest_hz(samples: np.ndarray, rate: int = 24_000) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum) * rate / len(samples))


def is_same_sound(one: bytes, other: bytes) -> bool:
    """Whether 16-bit samples are the same but for rounding: the codec's sums depend on how many frames it decodes at once, so on time."""
    if len(one) != len(other):
        return False
    return bool(np.all(np.abs(np.frombuffer(one, "<i2").astype(int) - np.frombuffer(other, "<i2")) <= ROUNDING))
