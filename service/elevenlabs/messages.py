"""The messages of ElevenLabs' sockets. Lenient in what it reads: unknown fields are ignored, both spellings are accepted.

What is sent carries both spellings of every name on which clients disagree. Knows how a message looks, not when it may be
sent (``sockets.py``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, ConfigDict, computed_field

from service.credentials import bare
from service.elevenlabs.alignment import Span
from service.messages import ErrorCode
from tts_spec.types import SpeechError

# Our codes -> the names this API's clients know.
ERROR_NAMES: dict[str, str] = {
    ErrorCode.UNAUTHORIZED: "invalid_api_key",
    ErrorCode.UNKNOWN_VOICE: "voice_not_found",
    ErrorCode.OVERLOADED: "system_busy",
    ErrorCode.TOO_LONG: "max_character_limit_exceeded",
    ErrorCode.IDLE_TIMEOUT: "input_timeout_exceeded",
}


@dataclass(frozen=True, slots=True)
class ClientFrame:
    """One message from the client; None where it says nothing."""

    text: str | None = None
    context: str | None = None
    flush: bool = False
    close_context: bool = False
    close_socket: bool = False
    cancel: bool = False
    voice_settings: Mapping[str, Any] | None = None
    api_key: str | None = None


def read_frame(data: str) -> ClientFrame:
    """Raises ``SpeechError`` for what is no JSON object, or has a field of the wrong type."""
    try:
        raw = json.loads(data)
    except ValueError:
        raise SpeechError(ErrorCode.INVALID_JSON, "the message is not JSON; allowed: a JSON object") from None
    if not isinstance(raw, dict):
        raise SpeechError(ErrorCode.INVALID_VALUE, f"the message is a {type(raw).__name__}; allowed: a JSON object")
    key = _field(raw, str, "xi_api_key", "xi-api-key", "authorization")
    return ClientFrame(
        text=_text(_field(raw, str, "text")),
        context=_field(raw, str, "context_id", "contextId"),
        flush=_field(raw, bool, "flush") or False,
        close_context=_field(raw, bool, "close_context", "closeContext") or False,
        close_socket=_field(raw, bool, "close_socket", "closeSocket") or False,
        cancel=_field(raw, bool, "cancel") or False,
        voice_settings=_field(raw, dict, "voice_settings", "voiceSettings"),
        api_key=bare(key) if key else None,
    )


def _field(raw: Mapping[str, Any], kind: type, *names: str) -> Any:
    for name in names:
        value = raw.get(name)
        if value is None:
            continue
        if not isinstance(value, kind):
            shown = repr(value)[:80]
            raise SpeechError(ErrorCode.INVALID_VALUE, f"{name} is {shown}; allowed: a {kind.__name__}", name)
        return value
    return None


def _text(text: str | None) -> str | None:
    if text is not None and any("\ud800" <= character <= "\udfff" for character in text):
        raise SpeechError(ErrorCode.INVALID_JSON, "text has half a surrogate pair; allowed: Unicode text", "text")
    return text


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True)


class Alignment(_Message):
    """Characters of one audio frame; whole milliseconds from the start of the frame, which they span."""

    chars: tuple[str, ...]
    charStartTimesMs: tuple[int, ...]  # noqa: N815
    charDurationsMs: tuple[int, ...]  # noqa: N815

    @computed_field  # type: ignore[prop-decorator]
    @property
    def charsDurationsMs(self) -> tuple[int, ...]:  # noqa: N802
        """Its name in the schema of 2025."""
        return self.charDurationsMs

    @classmethod
    def of(cls, span: Span) -> Alignment:
        # Rounded on the clock of the stream, so that the spans of all frames add up to it.
        at = [round(1000 * second) for second in (*span.starts_s, span.end_s)]
        starts = tuple(each - at[0] for each in at[:-1])
        durations = tuple(after - before for before, after in pairwise(at))
        return cls(chars=span.characters, charStartTimesMs=starts, charDurationsMs=durations)


class AudioFrame(_Message):
    """Audio (base64), or with ``isFinal`` the end of a stream."""

    audio: str | None
    isFinal: bool | None = None  # noqa: N815
    normalizedAlignment: Alignment | None = None  # noqa: N815
    alignment: Alignment | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def is_final(self) -> bool | None:
        """The other spelling."""
        return self.isFinal


class ContextAudioFrame(AudioFrame):
    """The same, of one context of many."""

    contextId: str  # noqa: N815

    @computed_field  # type: ignore[prop-decorator]
    @property
    def context_id(self) -> str:
        """The other spelling."""
        return self.contextId


class ErrorFrame(_Message):
    """Something went wrong; ``code`` is the close code that follows, or would if other contexts did not live on."""

    message: str
    error: str
    code: int
    retry_after_ms: int | None = None  # an addition: with system_busy, when there may be room


class ContextErrorFrame(ErrorFrame):
    """The same, of one context."""

    contextId: str  # noqa: N815

    @computed_field  # type: ignore[prop-decorator]
    @property
    def context_id(self) -> str:
        """The other spelling."""
        return self.contextId
