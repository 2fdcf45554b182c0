"""demo/client.py as a user runs it: a process with a pipe."""

from __future__ import annotations

import asyncio
import json
import sys
import wave
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from tests.service.client import PATIENCE_S, connect, hear, loudest_hz, send, speak, stream_url
from tests.service.fake_engine import FRAME, FakeEngine, pitch

pytestmark = pytest.mark.anyio
CLIENT = Path(__file__).parents[2] / "demo" / "client.py"


async def start(out: Path, url: str, *arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, str(CLIENT), "-o", str(out), "--url", url, *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )


async def test_text_becomes_a_wav(fake: FakeEngine, tmp_path: Path) -> None:
    out, words = tmp_path / "out.wav", tmp_path / "words.json"
    text = "Grüße 🙂 to everyone"
    async with stream_url(fake) as url:
        client = await start(out, url, "--voice", "ben", "--speed", "1.25", "--seed", "5", "--words", str(words))
        stdout, stderr = await client.communicate(text.encode())
        heard = await speak(url, text, voice="ben", speed=1.25, seed=5)
    assert (client.returncode, stdout) == (0, b"")
    warning, stats = stderr.decode().splitlines()
    assert warning == "warning: 🙂 has no sound"
    with wave.open(str(out)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24_000)
        samples = file.readframes(file.getnframes())
    assert samples == heard.audio
    assert json.loads(stats)["audio_s"] == pytest.approx(len(samples) / 48_000)
    assert loudest_hz(heard.samples) == pytest.approx(pitch(5), abs=2)
    assert [text[word["start_char"] : word["end_char"]] for word in json.loads(words.read_text(encoding="utf-8"))] == [
        "Grüße",
        "to",
        "everyone",
    ]


async def test_text_is_sent_as_it_arrives(fake: FakeEngine, tmp_path: Path) -> None:
    async with stream_url(fake) as url:
        client = await start(tmp_path / "out.wav", url)
        assert client.stdin is not None
        data = "The first wörds".encode()
        client.stdin.write(data[:12])  # half of the ö: it must wait for the rest
        assert await asyncio.to_thread(fake.wait_for, lambda: fake.active == 1 and fake.sessions[0].frames > 0)
        _, stderr = await client.communicate(data[12:])
    assert json.loads(stderr)["audio_s"] == pytest.approx(fake.sessions[0].frames * FRAME / 24_000)


@pytest.mark.parametrize(("option", "said"), [(["--voice", "zed"], "voice is 'zed'"), (["--speed", "9"], "speed is 9")])
async def test_an_error_ends_with_exit_code_1_while_standard_input_is_open(
    fake: FakeEngine, tmp_path: Path, option: list[str], said: str
) -> None:
    async with stream_url(fake) as url, asyncio.timeout(PATIENCE_S):
        client = await start(tmp_path / "out.wav", url, *option)
        assert client.stderr is not None
        assert await client.wait() == 1  # standard input still open: the error must not wait for it
        assert (await client.stderr.read()).decode().startswith(f"error: {said}")


async def test_a_full_server_is_an_error(fake: FakeEngine, tmp_path: Path) -> None:
    async with stream_url(fake, max_sessions=1, max_waiting=0) as url, connect(url) as socket:
        await send(socket, {"type": "start"})
        await hear(socket, until="started")
        client = await start(tmp_path / "out.wav", url)
        _, stderr = await client.communicate(b"Hello")
    assert client.returncode == 1
    assert "overloaded" in stderr.decode()


async def test_no_server_is_an_error(tmp_path: Path) -> None:
    client = await start(tmp_path / "out.wav", "ws://127.0.0.1:1/v1/stream")
    _, stderr = await client.communicate(b"Hello")
    assert client.returncode == 1
    assert stderr.decode().startswith("error: cannot use ws://127.0.0.1:1/v1/stream")
    assert "Traceback" not in stderr.decode()
