"""What the URL of a socket or request says, and what voice settings mean here. Reads values; opens nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from service.elevenlabs.formats import output_format
from service.messages import ErrorCode
from service.options import ServerOptions
from service.voices import VoiceBook
from tts_spec.audio.formats import AudioFormat
from tts_spec.types import SpeakOptions, SpeechError

INACTIVITY_S = 20.0
MAX_INACTIVITY_S = 180.0
SPEEDS = (0.25, 4.0)  # the most any client of this API sends
MAX_SEED = 2**32 - 1


@dataclass(frozen=True, slots=True)
class SocketSettings:
    """One socket's, fixed by its URL and by the server."""

    options: SpeakOptions
    format: AudioFormat
    auto_mode: bool  # every message is a whole sentence or phrase: no waiting for what may follow its end
    inactivity_s: float
    close_cancels: bool
    max_message_bytes: int
    max_text_chars: int


def plain_settings(server: ServerOptions) -> SocketSettings:
    """Those of a URL that says nothing."""
    return SocketSettings(
        options=SpeakOptions(),
        format=output_format(None),
        auto_mode=False,
        inactivity_s=INACTIVITY_S,
        close_cancels=server.close_context_cancels,
        max_message_bytes=server.max_message_bytes,
        max_text_chars=server.max_text_chars,
    )


def read_settings(voice: str, query: Mapping[str, str], voices: VoiceBook, server: ServerOptions) -> SocketSettings:
    """Unknown fields, models and languages are ignored. Raises ``SpeechError`` for an unknown voice or a bad value."""
    inactivity = query.get("inactivity_timeout")
    try:
        inactivity_s = min(max(float(inactivity or INACTIVITY_S), 1.0), MAX_INACTIVITY_S)
    except ValueError:
        raise _bad("inactivity_timeout", inactivity, f"seconds, up to {MAX_INACTIVITY_S:g}") from None
    return replace(
        plain_settings(server),
        options=SpeakOptions(voice=voices.find(voice), seed=read_seed(query.get("seed"))),
        format=output_format(query.get("output_format")),
        auto_mode=query.get("auto_mode", "").lower() == "true",
        inactivity_s=inactivity_s,
    )


def read_seed(value: Any) -> int:
    """A seed as number or digits; 0 where there is none."""
    if value is None or value == "":
        return 0
    if not isinstance(value, bool):
        try:
            seed = int(value)
        except (TypeError, ValueError, OverflowError):
            seed = -1
        if 0 <= seed <= MAX_SEED:
            return seed
    raise _bad("seed", value, f"a whole number from 0 to {MAX_SEED}")


def speed_of(voice_settings: Mapping[str, Any] | None) -> float:
    """The speed in voice settings; the rest of them (stability, similarity, style, ...) the voice does not have."""
    speed = (voice_settings or {}).get("speed")
    if speed is None:
        return 1.0
    if isinstance(speed, bool) or not isinstance(speed, int | float) or not SPEEDS[0] <= speed <= SPEEDS[1]:
        raise _bad("speed", speed, f"a number from {SPEEDS[0]:g} to {SPEEDS[1]:g}")
    return float(speed)


def _bad(field: str, value: object, allowed: str) -> SpeechError:
    return SpeechError(ErrorCode.INVALID_VALUE, f"{field} is {repr(value)[:80]}; allowed: {allowed}", field)
