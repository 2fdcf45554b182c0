"""ElevenLabs' HTTP API: what a request means, what the answers look like. Does no I/O."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from service.elevenlabs.alignment import CharacterClock, Span
from service.elevenlabs.formats import output_format
from service.elevenlabs.messages import ERROR_NAMES
from service.elevenlabs.settings import read_seed, speed_of
from service.http_speech import AudioBody, SpeechOrder
from service.messages import ErrorCode
from service.speech import Piece, split_speed
from service.voices import VoiceBook
from tts_spec.types import SpeakOptions, SpeechError, Word

MODELS = ("eleven_flash_v2_5", "eleven_turbo_v2_5", "eleven_multilingual_v2")
MAX_TEXT_CHARS = 40_000


def read_order(
    voice: str, query: Mapping[str, str], body: Mapping[str, Any], voices: VoiceBook, *, live: bool
) -> SpeechOrder:
    """What to say. Unknown fields are ignored. ``live``: somebody listens while it is made. Raises ``SpeechError``."""
    text = body.get("text")
    if not isinstance(text, str):
        raise SpeechError(ErrorCode.INVALID_VALUE, f"text is {repr(text)[:80]}; allowed: a string", "text")
    if len(text) > MAX_TEXT_CHARS:
        raise SpeechError(
            ErrorCode.TOO_LONG, f"text has {len(text)} characters; allowed: up to {MAX_TEXT_CHARS}", "text"
        )
    settings = body.get("voice_settings")
    if settings is not None and not isinstance(settings, dict):
        raise SpeechError(
            ErrorCode.INVALID_VALUE, f"voice_settings is {repr(settings)[:80]}; allowed: an object", "voice_settings"
        )
    speed, tempo = split_speed(speed_of(settings))
    options = SpeakOptions(voice=voices.find(voice), speed=speed, seed=read_seed(body.get("seed")), live=live)
    return SpeechOrder(text, options, output_format(query.get("output_format")), tempo)


def refuse(error: SpeechError, status: int) -> Response:
    """An error as this API's clients read it."""
    if error.code == ErrorCode.UNKNOWN_VOICE:
        status = 404
    name = ERROR_NAMES.get(error.code, str(error.code))
    detail = {"status": name, "message": error.message}
    return JSONResponse({"detail": detail | ({"param": error.field} if error.field else {})}, status)


class TimedLines(AudioBody):
    """A JSON object a line: audio and the characters that begin in it, in seconds of the whole answer."""

    def __init__(self, text: str) -> None:
        super().__init__("application/x-ndjson", refuse)
        self._clock = CharacterClock()
        self._clock.text(text)
        self._from_s = 0.0

    def piece(self, piece: Piece) -> bytes:
        """See ``http_speech.AnswerShape``."""
        self._clock.words(piece.onsets, piece.words)
        if not piece.audio:
            return b""
        alignment = _alignment(self._clock.take(self._from_s, piece.end_s, last=piece.stats is not None))
        self._from_s = piece.end_s
        audio = base64.b64encode(piece.audio).decode()
        line = {"audio_base64": audio, "alignment": alignment, "normalized_alignment": alignment}
        return json.dumps(line).encode() + b"\n"


class TimedWhole(AudioBody):
    """One JSON object: the audio as it is made, then all characters, whose times are known only then."""

    def __init__(self, text: str) -> None:
        super().__init__("application/json", refuse)
        self._text = text
        self._words: list[Word] = []
        self._rest = b""  # base64 takes three bytes at a time
        self._begun = False

    def piece(self, piece: Piece) -> bytes:
        """See ``http_speech.AnswerShape``."""
        self._words += piece.words
        audio = self._rest + piece.audio
        whole = len(audio) // 3 * 3
        self._rest = audio[whole:]
        if not whole:
            return b""
        return self._opening() + base64.b64encode(audio[:whole])

    def end(self, last: Piece) -> bytes:
        """See ``http_speech.AnswerShape``."""
        clock = CharacterClock()
        clock.text(self._text)
        clock.words((), self._words)
        alignment = json.dumps(_alignment(clock.take(0.0, last.end_s, last=True)))
        rest = self._opening() + base64.b64encode(self._rest)
        return rest + f'", "alignment": {alignment}, "normalized_alignment": {alignment}}}'.encode()

    def _opening(self) -> bytes:
        opening = b"" if self._begun else b'{"audio_base64": "'
        self._begun = True
        return opening


def _alignment(span: Span) -> dict[str, Any]:
    return {
        "characters": span.characters,
        "character_start_times_seconds": [round(at, 4) for at in span.starts_s],
        "character_end_times_seconds": [round(at, 4) for at in span.ends_s],
    }


def voice_entry(voices: VoiceBook, name: str) -> dict[str, Any]:
    """A voice or a mix as this API lists it, with the fields of our own list beside. Raises ``SpeechError`` ``unknown_voice``."""
    found = voices.describe(name)
    return {
        "voice_id": found.name,
        "name": found.name,
        "category": "premade",
        "description": found.description,
        "labels": {"gender": found.gender, "language": found.language},
        "preview_url": None,
        "available_for_tiers": [],
        "settings": None,
        "language": found.language,
        "gender": found.gender,
    }


def models() -> list[dict[str, Any]]:
    """``GET /v1/models``. The names are ElevenLabs'; behind each is the one voice bundle that is served."""
    return [
        {
            "model_id": name,
            "name": name,
            "description": "The voices of this server",
            "can_do_text_to_speech": True,
            "can_do_voice_conversion": False,
            "can_be_finetuned": False,
            "can_use_style": False,
            "can_use_speaker_boost": False,
            "serves_pro_voices": False,
            "requires_alpha_access": False,
            "token_cost_factor": 1.0,
            "max_characters_request_free_user": MAX_TEXT_CHARS,
            "max_characters_request_subscribed_user": MAX_TEXT_CHARS,
            "maximum_text_length_per_request": MAX_TEXT_CHARS,
            "languages": [{"language_id": "en", "name": "English"}],
        }
        for name in MODELS
    ]
