"""pipecat's and livekit's services, unmodified."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Run, Servers, pcm_says_it

pytestmark = pytest.mark.clients
TEXT = "The weather is nice today, and the sun is shining."
PIPECAT = ["socket", "http", "openai"]
LIVEKIT = ["elevenlabs", "mp3", "openai"]


@pytest.mark.parametrize("service", PIPECAT)
def test_pipecat_turn(run: Run, service: str) -> None:
    result = run("pipecat", "pipecat_services.py", f"{service}-turn")
    assert result["errors"] == []
    assert pcm_says_it(result["file"], 24_000)
    assert result["text"] == TEXT
    if service != "openai":  # which has no word times
        assert 1.0 < result["span"] < result["seconds"]


@pytest.mark.parametrize("service", PIPECAT)
def test_pipecat_interruption_and_the_next_turn(run: Run, servers: Servers, service: str) -> None:
    result = run("pipecat", "pipecat_services.py", f"{service}-interruption")
    assert result["errors"] == []
    assert pcm_says_it(result["file"], 24_000)
    assert result["seconds"] < 8  # nothing of the thirty sentences before it
    assert servers.is_quiet()


@pytest.mark.parametrize("service", PIPECAT)
def test_h52_pipecat_nothing_to_say_and_the_next_turn(run: Run, service: str) -> None:
    result = run("pipecat", "pipecat_services.py", f"{service}-empty")
    assert pcm_says_it(result["file"], 24_000)
    if service != "socket":
        assert any("nothing to speak" in error for error in result["errors"])


def test_pipecat_error(run: Run) -> None:
    result = run("pipecat", "pipecat_services.py", "http-error")
    assert any("voice_not_found" in error for error in result["errors"])
    assert result["seconds"] == 0
    result = run("pipecat", "pipecat_services.py", "socket-error")
    assert result["errors"]
    assert result["seconds"] == 0


@pytest.mark.parametrize("plugin", LIVEKIT)
def test_livekit_turn(run: Run, plugin: str) -> None:
    result = run("livekit", "livekit_plugins.py", f"{plugin}-turn")
    assert pcm_says_it(result["file"], result["rate"])
    if plugin != "openai":
        assert "".join(word["text"] for word in result["timed"]).strip() == TEXT


@pytest.mark.parametrize("plugin", LIVEKIT)
def test_livekit_interruption_and_the_next_turn(run: Run, servers: Servers, plugin: str) -> None:
    result = run("livekit", "livekit_plugins.py", f"{plugin}-interruption")
    assert pcm_says_it(result["file"], result["rate"])
    assert servers.is_quiet()


@pytest.mark.parametrize("plugin", LIVEKIT)
def test_livekit_error(run: Run, plugin: str) -> None:
    assert "API" in run("livekit", "livekit_plugins.py", f"{plugin}-error")["error"]


@pytest.mark.parametrize("plugin", LIVEKIT)
def test_h52_livekit_nothing_to_say_and_the_next_turn(run: Run, plugin: str) -> None:
    result = run("livekit", "livekit_plugins.py", f"{plugin}-empty")
    assert result.get("silence") == 0 or "error" in result
    assert pcm_says_it(result["file"], result["rate"])
