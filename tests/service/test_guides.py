"""The guides say what the code does: every setting, every error, examples that are valid."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

import service
from service.config import load_options
from service.elevenlabs.messages import ERROR_NAMES
from service.elevenlabs.sockets import POLICY, TOO_MANY
from service.http_speech import STATUS
from service.openai_api import FORMATS, MAX_INPUT_CHARS
from service.options import ServerOptions
from service.voices import OPENAI_VOICES

DOCS = Path(service.__path__[0]) / "docs"
SERVING, OPENAI, ELEVENLABS = (
    (DOCS / name).read_text("utf-8") for name in ("serving.md", "openai.md", "elevenlabs.md")
)


@pytest.mark.parametrize("name", [f.name for f in fields(ServerOptions) if f.name not in ("api_keys", "voice_aliases")])
def test_every_setting_is_in_the_table_with_its_default(name: str) -> None:
    row = re.search(rf"^\| `{name}` \| ([^|]+) \|", SERVING, flags=re.MULTILINE)
    assert row
    default = getattr(ServerOptions(), name)
    shown = {None: ("none", "off"), (): ("none",), True: ("true",), False: ("false",)}.get(default, (f"{default}",))
    if isinstance(default, float):
        shown = (f"{default:g}",)
    assert row[1] in shown


def test_the_example_file_is_read(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", SERVING, flags=re.DOTALL)
    file = tmp_path / "tts-spec.toml"
    file.write_text(text)
    options = load_options(file, {}, {})
    assert (options.host, options.api_keys[0].max_sessions) == ("0.0.0.0", 4)


def test_openais_names_formats_and_limits() -> None:
    for name in OPENAI_VOICES:
        assert name in OPENAI
    for name in FORMATS:
        assert f"`{name}`" in OPENAI
    assert f"up to {MAX_INPUT_CHARS} characters" in OPENAI
    json.loads(re.findall(r"```json\n(.*?)```", OPENAI, flags=re.DOTALL)[0])


def test_every_status_is_listed() -> None:
    for status in {*STATUS.values(), 500} - {408}:  # of a reader so slow that it is never told
        assert re.search(rf"^\| {status} \|", OPENAI, flags=re.MULTILINE)


def test_elevenlabs_errors_are_listed() -> None:
    for name in (*ERROR_NAMES.values(), POLICY, TOO_MANY, "context_closing"):
        assert f"| `{name}` |" in ELEVENLABS


def test_the_container_file_copies_all_that_is_installed() -> None:
    root = DOCS.parents[1]
    text = (root / "Containerfile").read_text("utf-8")
    copied = {name for line in re.findall(r"^COPY (.*)$", text, flags=re.MULTILINE) for name in line.split()[:-1]}
    packages = {each.name for each in root.iterdir() if (each / "__init__.py").exists() and each.name != "tests"}
    assert packages | {"demo", "pyproject.toml", "README.md", "LICENSE", "NOTICE"} <= copied
    assert all((root / name).exists() for name in copied)
    (command,) = re.findall(r"^CMD (.*)$", text, flags=re.MULTILINE)
    assert json.loads(command)[:2] == ["tts-spec", "serve"]
