"""The server as a process: its address, its signals, its exit."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator

import anyio
import pytest

from service.options import ServerOptions
from service.server import running
from tests.service.client import connect, hear, send
from tests.service.fake_engine import FakeEngine

pytestmark = pytest.mark.anyio


@pytest.fixture
async def process(request: pytest.FixtureRequest) -> AsyncIterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own and the address of its stream. The parameter is its drain time."""
    command = [sys.executable, "-m", "tests.service.serve_fake", "0", "0.002", request.param]
    with subprocess.Popen(  # noqa: ASYNC220 - a fixture; nothing else runs yet
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as child:
        assert child.stdout is not None
        line = await anyio.to_thread.run_sync(child.stdout.readline)
        found = re.fullmatch(r"Listening on http(://127\.0\.0\.1:\d+) \(Ctrl\+C stops\)\n", line)
        assert found, line
        try:
            yield child, f"ws{found[1]}/v1/stream"
        finally:
            child.kill()


@pytest.mark.parametrize("process", ["20"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_the_stream_finish(process: tuple[subprocess.Popen[str], str], number: int) -> None:
    child, url = process
    async with connect(url) as client:  # the first try succeeds: the line was printed when the socket listened
        await send(client, {"type": "start"}, {"type": "text", "text": "word " * 20}, {"type": "end"})
        await hear(client, until="audio")
        child.send_signal(number)
        heard = await hear(client)
    assert heard.one("end")["reason"] == "complete"
    output, _ = child.communicate(timeout=10)
    assert (child.returncode, output) == (0, "Stopping: running streams may finish\n")


@pytest.mark.parametrize("process", ["0.1"], indirect=True)
async def test_a_signal_ends_what_does_not_finish(process: tuple[subprocess.Popen[str], str]) -> None:
    child, url = process
    async with connect(url) as client:
        await send(client, {"type": "start"})
        await hear(client, until="started")
        child.send_signal(signal.SIGTERM)
        heard = await hear(client)
    assert (heard.one("error")["code"], heard.close_code) == ("shutting_down", 1001)
    child.communicate(timeout=10)
    assert child.returncode == 0


async def test_an_address_in_use_is_an_error(fake: FakeEngine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            async with running(fake, ServerOptions(port=port)):
                pass
