"""Who is idle, in virtual time: a client that says nothing when it is its turn, and nobody who waits for us."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest

from service.metrics import Metrics
from service.options import ServerOptions
from service.protocol import StreamProtocol
from service.session import SocketSession
from service.studio import Studio
from tests.service.fake_engine import FakeEngine
from tests.virtual_time import VirtualTime, finish

IDLE_S = 10.0
START: dict[str, Any] = {"type": "start"}
TEXT = {"type": "text", "text": "and"}


class Wire:
    """A socket in memory: what comes ``after_s`` one another, and what was said when."""

    def __init__(self, loop: VirtualTime, messages: list[dict[str, Any]], after_s: float) -> None:
        self._loop = loop
        self._messages = [json.dumps(message) for message in messages]
        self._after_s = after_s
        self.said: list[dict[str, Any]] = []
        self.closed: tuple[float, int] | None = None

    async def receive(self) -> MutableMapping[str, Any]:
        await asyncio.sleep(self._after_s if self._messages else 1e9)
        return {"type": "websocket.receive", "text": self._messages.pop(0)}

    async def send_text(self, data: str) -> None:
        self.said.append(json.loads(data))

    async def send_bytes(self, data: bytes) -> None:
        raise AssertionError("the engine stands still")

    async def close(self, code: int, reason: str) -> None:
        self.closed = (self._loop.time(), code)


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    engine.hold()
    yield engine
    engine.close()


def visit(engine: FakeEngine, *messages: dict[str, Any], after_s: float = 0.0, until_s: float = 10 * IDLE_S) -> Wire:
    """What becomes of a client that says this and then nothing."""
    loop = VirtualTime()
    wire = Wire(loop, list(messages), after_s)
    options = ServerOptions(idle_s=IDLE_S)

    async def run() -> None:
        studio = Studio(engine, options, Metrics(engine, lambda: 1))
        serving = asyncio.create_task(SocketSession(wire, StreamProtocol(engine.info, options), studio).run())
        await asyncio.wait([serving], timeout=until_s)
        serving.cancel()
        await asyncio.wait([serving])
        studio.close()

    finish(loop, run())
    loop.close()
    return wire


@pytest.mark.parametrize("messages", [[], [START], [START, TEXT]])
def test_a_silent_client_is_closed_when_its_time_is_over(engine: FakeEngine, messages: list[dict[str, Any]]) -> None:
    wire = visit(engine, *messages, after_s=3.0)
    assert wire.closed == (pytest.approx(3.0 * len(messages) + IDLE_S), 1008)
    assert wire.said[-1]["code"] == "idle_timeout"
    assert engine.active == 0


def test_whoever_says_something_in_time_is_not_idle(engine: FakeEngine) -> None:
    wire = visit(engine, START, *[TEXT] * 20, after_s=0.9 * IDLE_S)
    assert wire.closed is None
    assert visit(engine, START, *[TEXT] * 20, after_s=1.1 * IDLE_S).closed is not None


@pytest.mark.parametrize("last", ["flush", "end"])
def test_a_client_that_waits_for_us_is_not_idle(engine: FakeEngine, last: str) -> None:
    wire = visit(engine, START, TEXT, {"type": last})
    assert wire.closed is None
    assert [each["type"] for each in wire.said] == ["started"]
