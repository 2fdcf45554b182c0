"""One more than are served at once: it waits in the engine's queue for its turn, or is told when to come again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service.client import Heard, connect, hear, http_client, send, speak, stream_url
from tts_spec.engine.local import LocalEngine
from tts_spec.engine.options import EngineOptions
from tts_spec.engine.scheduler import SchedulerOptions
from tts_spec.synthesizer import Synthesizer

pytestmark = pytest.mark.anyio
ROOM = {"max_sessions": 1, "max_waiting": 1}


@pytest.fixture
def engine(request: pytest.FixtureRequest, tiny: Synthesizer) -> Iterator[LocalEngine]:
    """An engine with one slot, in whose queue one may wait so many seconds."""
    limits = EngineOptions(
        max_sessions=1,
        max_queued=1,
        queue_wait_s=request.param,
        idle_s=600.0,  # who is silent for long would give its slot to the one that waits
        scheduler=SchedulerOptions(load_limit=100.0),
    )
    engine = LocalEngine(tiny.bundle, tiny.frontend, limits)
    yield engine
    engine.close()


@pytest.mark.parametrize("engine", [600.0], indirect=True)
async def test_one_more_waits_its_turn_and_is_then_served(engine: LocalEngine) -> None:
    async with stream_url(engine, **ROOM) as url, connect(url) as first, connect(url) as second:
        await send(first, {"type": "start"}, {"type": "text", "text": "Hello."}, {"type": "flush"})
        await hear(first, until="flushed")
        await send(second, {"type": "start"}, {"type": "text", "text": "Me too."}, {"type": "end"})
        await hear(second, until="started")
        assert (await speak(url, "And me?")).one("error")["code"] == "overloaded"  # the queue is full
        assert engine.metrics()["sessions_queued"] == 1
        await send(first, {"type": "end"})
        assert (await hear(first)).close_code == 1000
        heard = await hear(second)
    assert heard.one("end")["reason"] == "complete"
    assert heard.audio


@pytest.mark.parametrize("engine", [0.1], indirect=True)
async def test_who_waits_in_vain_is_told_when_to_come_again(engine: LocalEngine) -> None:
    async with stream_url(engine, **ROOM) as url, connect(url) as first:
        await send(first, {"type": "start"}, {"type": "text", "text": "Hello."}, {"type": "flush"})
        await hear(first, until="flushed")
        refused: Heard = await speak(url, "Me too.")
        assert refused.one("error")["code"] == "overloaded"
        assert refused.one("error")["retry_after_ms"] > 0
        assert refused.close_code == 1013
        async with http_client(url) as http:
            answer = await http.post("/v1/audio/speech", json={"input": "Me too.", "response_format": "pcm"})
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
