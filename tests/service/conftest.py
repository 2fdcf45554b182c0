"""Fixtures of the service tests: an engine, and the real server around it on a free port."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service.fake_engine import FakeEngine
from tts_spec.engine.local import LocalEngine
from tts_spec.engine.options import EngineOptions
from tts_spec.engine.port import Engine
from tts_spec.engine.scheduler import SchedulerOptions


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    """The sine engine with its handles, for tests that steer or watch the engine."""
    engine = FakeEngine()
    yield engine
    engine.close()


@pytest.fixture(params=["sine", "real"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The engine of the tests that hold for any engine: the sine one, and the real one over random weights."""
    if request.param == "sine":
        yield request.getfixturevalue("fake")
        return
    synthesizer = request.getfixturevalue("tiny")
    # Whoever comes is let in, and nobody waits for playback: what a slow machine can promise is not what these tests are about.
    scheduler = SchedulerOptions(load_limit=100.0, look_ahead_s=1000.0)
    options = EngineOptions(queue_wait_s=600.0, scheduler=scheduler)
    engine = LocalEngine(synthesizer.bundle, synthesizer.frontend, options)
    yield engine
    engine.close()
