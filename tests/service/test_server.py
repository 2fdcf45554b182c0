"""The server as a process: its address, its signals, its exit."""

from __future__ import annotations

import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
import trustme

from service.options import ServerOptions
from service.server import running
from tests.service.client import PATIENCE_S, connect, hear, http_client, send
from tests.service.fake_engine import FakeEngine
from tts_spec.types import SpeechError

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
    output, _ = child.communicate(timeout=PATIENCE_S)
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
    child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 0


async def test_tls_serves_https_and_wss(fake: FakeEngine, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    options = ServerOptions(port=0, drain_s=0.05, tls_certificate=str(tmp_path / "server.pem"))
    async with running(fake, options) as address:
        assert address.startswith("https://127.0.0.1:")
        async with http_client(verify=trust) as http:
            assert (await http.get(f"{address}/health")).status_code == 200
        async with connect(f"wss{address.removeprefix('https')}/v1/stream", ssl=trust) as socket:
            await send(socket, {"type": "start"}, {"type": "text", "text": "Hello"}, {"type": "end"})
            assert (await hear(socket)).one("end")["reason"] == "complete"


async def test_a_certificate_that_is_not_there_is_named(fake: FakeEngine) -> None:
    with pytest.raises(SpeechError, match=r"tls_certificate is .nowhere\.pem"):
        async with running(fake, ServerOptions(port=0, tls_certificate="nowhere.pem")):
            pass


async def test_an_address_in_use_is_an_error(fake: FakeEngine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            async with running(fake, ServerOptions(port=port)):
                pass
