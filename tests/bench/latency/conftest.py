"""Fixtures of the latency tests: asyncio, the sine engine, and an event loop whose time passes at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service.fake_engine import FakeEngine
from tests.virtual_time import VirtualTime


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.close()


@pytest.fixture
def virtual() -> Iterator[VirtualTime]:
    loop = VirtualTime()
    yield loop
    loop.close()
