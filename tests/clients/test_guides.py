"""The examples of the guides, run as they stand but for the address."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

import service
from tests.audio.test_encoder import decode
from tests.clients.conftest import ENVIRONMENTS, Servers
from tts_spec.audio.formats import AudioFormat

pytestmark = pytest.mark.clients


@pytest.mark.parametrize("guide", ["openai.md", "elevenlabs.md"])
def test_the_example_speaks(servers: Servers, tmp_path: Path, guide: str) -> None:
    text = (Path(service.__path__[0]) / "docs" / guide).read_text("utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert "http://127.0.0.1:8000" in example
    subprocess.run(
        [ENVIRONMENTS / "sdk" / "bin" / "python", "-c", example.replace("http://127.0.0.1:8000", servers.url)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": ""},
        check=True,
        timeout=60,
    )
    samples, rate = decode(AudioFormat("mp3"), (tmp_path / "hello.mp3").read_bytes())
    assert 0.8 < len(samples) / rate < 6
