"""The examples of the guides, run as they stand but for the address: each says hello into a file, and Whisper hears it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import service
from models.evaluation.transcribe import transcribe
from tests.audio.test_encoder import decode
from tests.clients.conftest import ENVIRONMENTS, Servers
from tts_spec.audio.formats import AudioFormat

pytestmark = pytest.mark.clients
DOCS = Path(service.__path__[0]) / "docs"
EXAMPLES = [  # guide, which of its examples, environment (None: ours)
    ("openai.md", 0, "sdk"),
    ("elevenlabs.md", 0, "sdk"),
    ("frameworks.md", 0, "livekit"),
    ("frameworks.md", 1, "pipecat"),
    ("wyoming.md", 0, None),
]


def at(servers: Servers, example: str) -> str:
    """The example with the address of the server that runs."""
    address = servers.url.removeprefix("http://")
    assert "127.0.0.1" in example
    return example.replace("127.0.0.1:8000", address).replace("10200", str(servers.wyoming_port))


def heard(folder: Path) -> str:
    (file,) = folder.iterdir()
    samples, rate = decode(AudioFormat("mp3"), file.read_bytes())
    assert 0.8 < len(samples) / rate < 6
    return transcribe(samples, rate).lower()


@pytest.mark.parametrize(("guide", "number", "environment"), EXAMPLES)
def test_the_example_speaks(servers: Servers, tmp_path: Path, guide: str, number: int, environment: str | None) -> None:
    example = re.findall(r"```python\n(.*?)```", (DOCS / guide).read_text("utf-8"), flags=re.DOTALL)[number]
    python = sys.executable if environment is None else ENVIRONMENTS / environment / "bin" / "python"
    subprocess.run(
        [python, "-c", at(servers, example)], cwd=tmp_path, env=os.environ | {"PYTHONPATH": ""}, check=True, timeout=60
    )
    assert "how are you" in heard(tmp_path)


def test_the_command_line_speaks(servers: Servers, tmp_path: Path) -> None:
    (command,) = re.findall(r"^    (curl .*)$", (DOCS / "openai.md").read_text("utf-8"), flags=re.MULTILINE)
    subprocess.run(["bash", "-c", at(servers, command)], cwd=tmp_path, check=True, timeout=60)
    assert "how are you" in heard(tmp_path)


def test_every_example_is_run() -> None:
    there = {
        (file.name, number)
        for file in DOCS.glob("*.md")
        for number in range(len(re.findall(r"```python\n", file.read_text("utf-8"))))
    }
    assert there == {(guide, number) for guide, number, _ in EXAMPLES}
