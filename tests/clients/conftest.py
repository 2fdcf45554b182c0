"""The real server with the starter voice, plain and over TLS, and clients in environments of their own.

`make clients` makes the environments from ``requirements/``; a missing one is a failure, not a skip.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import trustme

from models.evaluation.transcribe import transcribe
from service.options import ServerOptions
from service.server import running
from tests.audio.test_encoder import decode
from tests.service.client import PATIENCE_S
from tts_spec.audio.formats import AudioFormat
from tts_spec.engine.process import ProcessEngine
from tts_spec.engine.worker import EngineSetup
from tts_spec.types import Pcm

HERE = Path(__file__).parent
ENVIRONMENTS = Path(os.environ.get("TTS_SPEC_CLIENTS", HERE.parents[1] / ".clients"))
SAID = {"weather", "is", "nice", "today", "and", "the", "sun", "shining"}


@dataclass(frozen=True)
class Servers:
    """Two servers over one engine."""

    url: str
    tls_url: str
    authority: Path  # PEM of who signed the certificate
    wyoming_port: int

    def is_quiet(self) -> bool:
        """Nobody is served and the engine holds nothing any more."""
        for _ in range(round(10 * PATIENCE_S)):
            health = httpx.get(f"{self.url}/health", timeout=PATIENCE_S).json()
            if not health["sessions"]["active"] and not health["engine"]["active"]:
                return True
            threading.Event().wait(0.1)
        return False


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
        str(folder / "server.pem")
    )
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    engine = ProcessEngine(EngineSetup())  # as `tts-spec serve` has it
    started, stop = threading.Event(), asyncio.Event()
    found: list[Servers] = []
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        plain = ServerOptions(port=0, wyoming_port=0, drain_s=1.0)
        secret = ServerOptions(port=0, drain_s=1.0, tls_certificate=str(folder / "server.pem"))
        async with running(engine, plain) as url, running(engine, secret) as tls_url:
            assert url.wyoming_port is not None
            found.append(Servers(url, tls_url, folder / "authority.pem", url.wyoming_port))
            started.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert started.wait(PATIENCE_S)
    yield found[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()
    engine.close()


Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(servers: Servers, tmp_path: Path) -> Run:
    """Runs a client's scenario in its environment and gives the JSON it prints."""

    def run(environment: str, script: str, scenario: str) -> dict[str, Any]:
        python = ENVIRONMENTS / environment / "bin" / "python"
        assert python.exists(), f"{python} is missing: run `make clients`"
        done = subprocess.run(
            [python, HERE / "scripts" / script, scenario, servers.url, tmp_path, servers.tls_url],
            env=os.environ | {"SSL_CERT_FILE": str(servers.authority), "PYTHONPATH": ""},
            capture_output=True,
            text=True,
            timeout=5 * PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result

    return run


def says_it(pcm: Pcm, rate: int) -> bool:
    """Whisper hears most of the words of the clients' sentence."""
    heard = transcribe(pcm, rate).lower().replace(",", "").replace(".", "").split()
    return len(SAID & set(heard)) >= 0.7 * len(SAID)


def pcm_says_it(path: str, rate: int) -> bool:
    """The same for a file of 16-bit samples."""
    return says_it((np.fromfile(path, "<i2") / 32767).astype(np.float32), rate)


def file_says_it(path: str) -> bool:
    """The same for an audio file that says itself what it is."""
    return says_it(*decode(AudioFormat("mp3"), Path(path).read_bytes()))
