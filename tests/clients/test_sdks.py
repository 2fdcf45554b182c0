"""The `openai` and `elevenlabs` SDKs, unmodified."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Run, Servers, file_says_it

pytestmark = pytest.mark.clients
TEXT = "The weather is nice today, and the sun is shining."


def test_openai_turn(run: Run) -> None:
    result = run("sdk", "openai_sdk.py", "turn")
    assert [file for file in result["files"] if not file_says_it(file)] == []
    assert result["pieces"] > 1
    assert len(result["request_id"]) == 32
    assert result["last"]["type"] == "speech.audio.done"
    assert "tts-1" in result["models"]


def test_openai_interruption(run: Run, servers: Servers) -> None:
    assert run("sdk", "openai_sdk.py", "interruption")["bytes"] > 0
    assert servers.is_quiet()


def test_openai_error_and_empty_text(run: Run) -> None:
    error = run("sdk", "openai_sdk.py", "error")
    assert (error["type"], error["status"], error["param"]) == ("BadRequestError", 400, "voice")
    assert "alloy" in error["message"]
    empty = run("sdk", "openai_sdk.py", "empty")
    assert (empty["type"], empty["status"]) == ("BadRequestError", 400)
    assert "nothing to speak" in empty["message"]


def test_elevenlabs_turn(run: Run) -> None:
    result = run("sdk", "elevenlabs_sdk.py", "turn")
    assert [file for file in result["files"] if not file_says_it(file)] == []
    assert result["characters"] == result["lines"] == TEXT
    assert 1.5 < result["ends"] < 8
    assert "eleven_flash_v2_5" in result["models"]


def test_elevenlabs_interruption(run: Run, servers: Servers) -> None:
    assert run("sdk", "elevenlabs_sdk.py", "interruption")["bytes"] > 0
    assert servers.is_quiet()


def test_elevenlabs_error_and_empty_text(run: Run) -> None:
    error = run("sdk", "elevenlabs_sdk.py", "error")
    assert error["http"]["status"] == 404
    assert error["http"]["body"]["detail"]["status"] == "voice_not_found"
    assert error["socket"]["status"] == 1008
    assert "voice_not_found" in str(
        error["socket"]["body"]
    )  # the whole message, or the close reason if that was read first
    assert run("sdk", "elevenlabs_sdk.py", "empty") == {"silence": [0, 0, 0], "status": 400}
