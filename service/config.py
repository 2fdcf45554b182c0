"""The server's settings from a file (``tts-spec.toml``), the environment and the command line, the later before the earlier.

Reads; starts nothing. The table of all settings is in ``service/docs/serving.md``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from service.keys import ApiKey
from service.options import ServerOptions
from tts_spec.types import SpeechError

DEFAULT_FILE = Path("tts-spec.toml")
KEYS_VARIABLE = "TTS_SPEC_API_KEYS"  # keys in the clear, parted by commas
SECTIONS = ("server", "keys", "voices", "lexicon")  # the last is the front end's: tts_spec/text/lexicon.py


def load_options(file: Path | None, environment: Mapping[str, str], given: Mapping[str, Any]) -> ServerOptions:
    """The settings. ``given``: those of the command line; None there means not given.

    ``file`` None: see ``settings_file``. Raises ``SpeechError`` naming what is wrong.
    """
    settings = _read(file) | {name: value for name, value in given.items() if value is not None}
    keys = [key.strip() for key in environment.get(KEYS_VARIABLE, "").split(",")]
    settings["api_keys"] = (
        *settings.get("api_keys", ()),
        *(ApiKey.of(f"environment {n}", key) for n, key in enumerate(keys, start=1) if key),
    )
    return ServerOptions(**settings)


def settings_file(file: Path | None) -> Path | None:
    """``file``, or by default ``tts-spec.toml`` of the working directory if there is one."""
    return file or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)


def _read(file: Path | None) -> dict[str, Any]:
    path = settings_file(file)
    if path is None:
        return {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpeechError("invalid_value", f"settings file {path}: {error}", "config") from None
    _only(content, SECTIONS, f"{path}")
    server, keys, voices = content.get("server", {}), content.get("keys", []), content.get("voices", {})
    if not isinstance(server, dict) or not isinstance(keys, list) or not isinstance(voices, dict):
        raise SpeechError("invalid_value", f"settings file {path}: allowed: [server], [[keys]], [voices]", "config")
    names = {each.name for each in fields(ServerOptions)} - {"api_keys", "voice_aliases"}
    _only(server, sorted(names), f"{path} [server]")
    settings = dict(server)
    if "allowed_origins" in settings:
        settings["allowed_origins"] = tuple(settings["allowed_origins"])
    for name in ("tls_certificate", "tls_key"):
        if name in settings:  # beside the file that names them
            settings[name] = str(path.parent / settings[name])
    for entry in keys:
        _only(entry, [each.name for each in fields(ApiKey)], f"{path} [[keys]]")
        if not {"name", "sha256"} <= set(entry):
            raise SpeechError(
                "missing_field", f"{path} [[keys]]: name and sha256 are needed; see `tts-spec key`", "keys"
            )
    return settings | {"api_keys": tuple(ApiKey(**entry) for entry in keys), "voice_aliases": voices}


def _only(table: Mapping[str, Any], allowed: Any, where: str) -> None:
    for name in table:
        if name not in allowed:
            raise SpeechError("unknown_field", f"{where}: {name} is no setting; allowed: {', '.join(allowed)}", name)
