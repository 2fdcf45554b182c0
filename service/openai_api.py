"""OpenAI's speech API: what a request body means, what the answers look like. Does no I/O.

Unknown fields are ignored, as many clients send some of their own; known fields with bad values are refused by name.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Literal

from starlette.responses import JSONResponse, Response

from service.http_speech import AudioBody, SpeechOrder
from service.messages import ErrorCode
from service.speech import Piece, split_speed
from service.voices import VoiceBook
from tts_spec.audio.formats import AudioFormat
from tts_spec.types import SpeakOptions, SpeechError

RATE = 24_000  # what OpenAI's own service sends; `pcm` has no header to say otherwise
FORMATS = {
    "mp3": AudioFormat("mp3", RATE),
    "opus": AudioFormat("opus", RATE),
    "aac": AudioFormat("aac", RATE),
    "flac": AudioFormat("flac", RATE),
    "wav": AudioFormat("wav", RATE),
    "pcm": AudioFormat("pcm_s16le", RATE),
}
MAX_INPUT_CHARS = 4096
SPEEDS = (0.25, 4.0)  # what the API allows
MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
FIELDS = {"text": "input", "sample_rate": "response_format"}  # our names of fields -> theirs


def read_order(body: Mapping[str, Any], voices: VoiceBook) -> tuple[SpeechOrder, Literal["audio", "sse"]]:
    """What to say, and how to send it. Raises ``SpeechError`` naming the field, its value and what is allowed."""
    text = body.get("input")
    if not isinstance(text, str):
        raise _bad("input", text, f"a string of up to {MAX_INPUT_CHARS} characters")
    if len(text) > MAX_INPUT_CHARS:
        raise SpeechError(
            ErrorCode.TOO_LONG, f"input has {len(text)} characters; allowed: up to {MAX_INPUT_CHARS}", "input"
        )
    response_format = _choice(body, "response_format", "mp3", tuple(FORMATS))
    stream_format: Any = _choice(body, "stream_format", "audio", ("audio", "sse"))
    speed = body.get("speed")
    if speed is None:
        speed = 1.0
    if isinstance(speed, bool) or not isinstance(speed, int | float) or not SPEEDS[0] <= speed <= SPEEDS[1]:
        raise _bad("speed", speed, f"a number from {SPEEDS[0]:g} to {SPEEDS[1]:g}")
    voice_speed, tempo = split_speed(speed)
    seed = body.get("seed")
    options = SpeakOptions(voice=voices.find(_voice(body)), speed=voice_speed, seed=0 if seed is None else seed)
    return SpeechOrder(text, options, FORMATS[response_format], tempo=tempo), stream_format


def _voice(body: Mapping[str, Any]) -> str | None:
    voice = body.get("voice")
    name = voice.get("id") if isinstance(voice, dict) else voice
    if name is not None and not isinstance(name, str):
        raise _bad("voice", voice, 'a name, or {"id": name}')
    return name


def _choice(body: Mapping[str, Any], field: str, default: str, allowed: tuple[str, ...]) -> str:
    value = body.get(field)
    if value is None:
        return default
    if not isinstance(value, str) or value not in allowed:
        raise _bad(field, value, ", ".join(allowed))
    return value


def _bad(field: str, value: object, allowed: str) -> SpeechError:
    shown = repr(value)
    return SpeechError(ErrorCode.INVALID_VALUE, f"{field} is {shown[:80]}; allowed: {allowed}", field)


def refuse(error: SpeechError, status: int) -> Response:
    """An error as OpenAI's clients read it."""
    return JSONResponse({"error": _describe(error, status)}, status)


def _describe(error: SpeechError, status: int) -> dict[str, Any]:
    kind = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}.get(status)
    code = {ErrorCode.UNAUTHORIZED: "invalid_api_key", ErrorCode.OVERLOADED: "rate_limit_exceeded"}.get(
        error.code,
        error.code,  # type: ignore[call-overload]
    )
    return {
        "message": error.message,
        "type": kind or ("invalid_request_error" if status < 500 else "server_error"),
        "param": FIELDS.get(error.field, error.field) if error.field else None,
        "code": str(code),
    }


class EventBody(AudioBody):
    """``stream_format`` sse: events ``speech.audio.delta``, then ``speech.audio.done`` with the usage."""

    def __init__(self, characters: int) -> None:
        super().__init__("text/event-stream", refuse)
        self._characters = characters

    def piece(self, piece: Piece) -> bytes:
        """See ``http_speech.AnswerShape``."""
        if not piece.audio:
            return b""
        return _event({"type": "speech.audio.delta", "audio": base64.b64encode(piece.audio).decode()})

    def end(self, last: Piece) -> bytes:
        """See ``http_speech.AnswerShape``. Input tokens are characters, output tokens those of the codec."""
        assert last.stats is not None
        spoken = last.stats.tokens
        usage = {"input_tokens": self._characters, "output_tokens": spoken, "total_tokens": self._characters + spoken}
        return _event({"type": "speech.audio.done", "usage": usage})

    def broken(self, error: SpeechError) -> bytes | None:
        """See ``http_speech.AnswerShape``."""
        return _event({"type": "speech.audio.error", "error": _describe(error, 500)})


def _event(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def models() -> dict[str, Any]:
    """``GET /v1/models``. The names are OpenAI's; behind each is the one voice bundle that is served."""
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": 0, "owned_by": "tts-spec"} for name in MODELS],
    }


def audio_voices(voices: VoiceBook) -> dict[str, Any]:
    """``GET /v1/audio/voices``, which Open WebUI asks for."""
    return {"voices": [{"id": voice.name, "name": voice.name} for voice in voices.voices]}


def audio_models() -> dict[str, Any]:
    """``GET /v1/audio/models``, which Open WebUI asks for."""
    return {"models": [{"id": name} for name in MODELS]}
