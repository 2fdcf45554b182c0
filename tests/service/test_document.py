"""protocol.md says what the code does: every message, every code, and examples that parse."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from service import messages
from service.app import DEMO
from service.messages import CLIENT_MESSAGES, CLOSE_CODES, SERVER_MESSAGES, ErrorCode, StartMessage
from tts_spec.types import SpeakOptions, SpeechError, SpeechStats

DOCUMENT = (Path(messages.__file__).parent / "protocol.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^(?:([CS]) )?(\{.*\})$", DOCUMENT, flags=re.MULTILINE)
CLASSES = [
    each
    for name, each in vars(messages).items()
    if isinstance(each, type) and issubclass(each, BaseModel) and each is not BaseModel and not name.startswith("_")
]


@pytest.mark.parametrize("each", CLASSES, ids=lambda each: each.__name__)
def test_every_message_class_is_documented(each: type[BaseModel]) -> None:
    assert f"`{each.__name__}`" in DOCUMENT


@pytest.mark.parametrize("code", ErrorCode)
def test_every_error_code_is_documented_with_its_close_code(code: ErrorCode) -> None:
    assert f"| `{code.value}` | {CLOSE_CODES[code]} |" in DOCUMENT


@pytest.mark.parametrize("name", [name for name in StartMessage.model_fields if name != "type"])
def test_every_field_of_start_is_documented(name: str) -> None:
    assert re.search(rf"^\| `{name}` \|", DOCUMENT, flags=re.MULTILINE)


def test_the_speeds_of_the_document_and_of_the_demo_are_those_of_the_library() -> None:
    documented = re.search(r"^\| `speed` \| (\S+) to (\S+) \|", DOCUMENT, flags=re.MULTILINE)
    page = (DEMO / "index.html").read_text(encoding="utf-8")
    slider = re.search(r'id="speed" type="range" min="(\S+)" max="(\S+)"', page)
    assert documented
    assert slider
    assert documented.groups() == slider.groups()
    slowest, fastest = (float(value) for value in slider.groups())
    for speed in (slowest, fastest):
        SpeakOptions(speed=speed)
    for speed in (slowest - 0.01, fastest + 0.01):
        with pytest.raises(SpeechError, match="speed"):
            SpeakOptions(speed=speed)


@pytest.mark.parametrize(("side", "example"), EXAMPLES)
def test_every_example_parses(side: str, example: str) -> None:
    adapter = CLIENT_MESSAGES if side == "C" else SERVER_MESSAGES
    adapter.validate_json(example)


def test_the_example_has_all_stats() -> None:
    (shown,) = [json.loads(example)["stats"] for side, example in EXAMPLES if side == "S" and '"stats"' in example]
    assert list(shown) == [*SpeechStats.__dataclass_fields__, "rtf", "tau"]


def test_the_examples_show_every_message() -> None:
    shown = {(side or "S", json.loads(example)["type"]) for side, example in EXAMPLES}
    assert {kind for side, kind in shown if side == "C"} == {"start", "text", "flush", "end"}
    assert {kind for side, kind in shown if side == "S"} == {
        "started", "onsets", "timestamps", "warning", "speculation", "flushed", "end", "error",
    }  # fmt: skip
