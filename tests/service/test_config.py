"""Settings from file, environment and command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from service.config import KEYS_VARIABLE, load_options
from service.keys import KeyRing, hash_key
from service.options import ServerOptions
from tts_spec.cli import app
from tts_spec.types import SpeechError

FILE = f"""
[server]
port = 9000
max_sessions = 4
allowed_origins = ["https://a.example"]
tls_certificate = "cert.pem"

[[keys]]
name = "phone"
sha256 = "{hash_key("secret")}"
max_sessions = 2

[voices]
Rachel = "ada"
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "tts-spec.toml"
    file.write_text(text)
    return file


def test_the_command_line_comes_before_the_file(tmp_path: Path) -> None:
    options = load_options(write(tmp_path, FILE), {}, {"port": 9001, "host": None})
    assert (options.port, options.host, options.max_sessions) == (9001, "127.0.0.1", 4)
    assert options.allowed_origins == ("https://a.example",)
    assert options.tls_certificate == str(tmp_path / "cert.pem")
    assert options.voice_aliases == {"Rachel": "ada"}
    assert [(key.name, key.max_sessions) for key in options.api_keys] == [("phone", 2)]


def test_keys_of_the_environment_are_added(tmp_path: Path) -> None:
    options = load_options(write(tmp_path, FILE), {KEYS_VARIABLE: "key-of-one, key-of-two,"}, {})
    assert [key.sha256 for key in options.api_keys] == [
        hash_key("secret"),
        hash_key("key-of-one"),
        hash_key("key-of-two"),
    ]
    assert "key-of-" not in str(options)


def test_without_a_file_everything_is_as_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_options(None, {}, {}) == ServerOptions()
    write(tmp_path, "[server]\nport = 9000\n")
    assert load_options(None, {}, {}).port == 9000


@pytest.mark.parametrize(
    ("text", "field", "parts"),
    [
        ("[server]\nprot = 1", "prot", ["prot is no setting", "port"]),
        ("[sever]", "sever", ["server, keys, voices"]),
        ("[server]\nport = 99999", "port", ["99999"]),
        ("[[keys]]\nname = 'a'", "keys", ["sha256"]),
        ("[[keys]]\nname = 'a'\nsha256 = 'secret'", "sha256", ["not a hash"]),
        ("[[keys]]\nname = 'a'\nsecret = 'x'", "secret", ["no setting"]),
        ("[server", "config", ["tts-spec.toml"]),
        ("server = 3", "config", ["[server]"]),
        ("[server]\nallowed_origins = ['a.example']", "allowed_origins", ["'a.example'", "https://"]),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, field: str, parts: list[str]) -> None:
    with pytest.raises(SpeechError) as caught:
        load_options(write(tmp_path, text), {}, {})
    assert caught.value.field == field
    for part in parts:
        assert part in caught.value.message


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com"])
def test_other_machines_may_come_with_a_key_or_when_the_owner_says_so(host: str) -> None:
    with pytest.raises(SpeechError, match="no API key is asked for") as caught:
        ServerOptions(host=host)
    assert caught.value.field == "host"
    ServerOptions(host=host, allow_anyone=True)
    options = load_options(None, {KEYS_VARIABLE: "k"}, {"host": host})
    assert options.host == host
    with pytest.raises(SpeechError, match="Wyoming knows no API keys"):
        load_options(None, {KEYS_VARIABLE: "k"}, {"host": host, "wyoming_port": 10200})


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.1.2.3"])
def test_this_machine_needs_no_key(host: str) -> None:
    assert ServerOptions(host=host).is_local


@pytest.mark.parametrize("fields", [{"tls_key": "k.pem"}, {"wyoming_port": -1}, {"max_body_bytes": 1}])
def test_more_bad_values(fields: dict[str, Any]) -> None:
    with pytest.raises(SpeechError) as caught:
        ServerOptions(**fields)
    assert caught.value.field in fields


def test_a_key_from_the_command_line_tool_opens_the_server(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["key", "phone"]).output
    made, _, entry = shown.partition("\n\n")
    options = load_options(write(tmp_path, entry), {}, {})
    assert KeyRing(options.api_keys).client(made).name == "phone"
    assert made not in entry
