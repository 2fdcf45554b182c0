"""The messages of the native protocol: one typed class each, and the error codes with their close codes.

Knows how a message looks, not when it may be sent (``protocol.py``) nor how it travels (``session.py``).
``protocol.md`` describes the same for people.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tts_spec.audio.formats import AudioFormat, Codec
from tts_spec.types import Budget, DrafterName, SpeakOptions, SpeculationMode, SpeechError


class ErrorCode(StrEnum):
    """What went wrong, for machines."""

    UNEXPECTED_MESSAGE = "unexpected_message"
    UNSUPPORTED_DATA = "unsupported_data"
    INVALID_JSON = "invalid_json"
    UNKNOWN_FIELD = "unknown_field"
    MISSING_FIELD = "missing_field"
    INVALID_VALUE = "invalid_value"
    UNKNOWN_VOICE = "unknown_voice"
    IDLE_TIMEOUT = "idle_timeout"
    SLOW_READER = "slow_reader"
    TOO_BIG = "too_big"
    TOO_LONG = "too_long"
    OVERLOADED = "overloaded"
    SHUTTING_DOWN = "shutting_down"
    UNAUTHORIZED = "unauthorized"
    QUOTA_EXCEEDED = "quota_exceeded"
    INTERNAL = "internal"


# RFC 6455 section 7.4.1; 1013 from the IANA registry.
CLOSE_CODES: dict[ErrorCode, int] = {
    ErrorCode.SHUTTING_DOWN: 1001,
    ErrorCode.UNEXPECTED_MESSAGE: 1002,
    ErrorCode.UNSUPPORTED_DATA: 1003,
    ErrorCode.INVALID_JSON: 1007,
    ErrorCode.UNKNOWN_FIELD: 1007,
    ErrorCode.MISSING_FIELD: 1007,
    ErrorCode.INVALID_VALUE: 1007,
    ErrorCode.UNKNOWN_VOICE: 1007,
    ErrorCode.IDLE_TIMEOUT: 1008,
    ErrorCode.SLOW_READER: 1008,
    ErrorCode.UNAUTHORIZED: 1008,
    ErrorCode.QUOTA_EXCEEDED: 1008,
    ErrorCode.TOO_BIG: 1009,
    ErrorCode.TOO_LONG: 1009,
    ErrorCode.INTERNAL: 1011,
    ErrorCode.OVERLOADED: 1013,
}


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


# Client to server


class BudgetFields(_Message):
    """What the listener is promised; ranges are those of ``Budget``."""

    first_audio_ms: float = 150.0
    max_gap_ms: float = 0.0


class StartMessage(_Message):
    """Opens the stream. Ranges are those of ``SpeakOptions``; null means the bundle's own default."""

    type: Literal["start"] = "start"
    voice: str | None = None
    format: Codec = "pcm_s16le"
    sample_rate: int = 24_000
    bitrate: int | None = None  # of mp3, opus and aac
    speed: float = 1.0
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    seed: int = 0
    drafter: DrafterName | None = None
    gamma: int | None = None
    mode: SpeculationMode = "coupled"
    live: bool = True
    budget: BudgetFields = BudgetFields()
    max_wait_ms: float = 1000.0
    timestamps: bool = False  # send OnsetsMessage and TimestampsMessage
    speculation: bool = False  # send SpeculationMessage

    def speak_options(self) -> SpeakOptions:
        """The part the engine wants. Raises ``SpeechError`` when a value is out of range."""
        fields = self.model_dump(include=set(SpeakOptions.__dataclass_fields__))
        return SpeakOptions(**fields | {"budget": Budget(**self.budget.model_dump())})

    def audio_format(self) -> AudioFormat:
        """What the audio is sent as. Raises ``SpeechError`` when this codec does not have that rate or bit rate."""
        return AudioFormat(self.format, self.sample_rate, self.bitrate)


class TextMessage(_Message):
    """A piece of text of any size; an empty one only says that the client is still there."""

    type: Literal["text"] = "text"
    text: str


class FlushMessage(_Message):
    """Speak what has arrived without waiting for more."""

    type: Literal["flush"] = "flush"


class EndMessage(_Message):
    """No more text."""

    type: Literal["end"] = "end"


class CancelMessage(_Message):
    """Stop at once."""

    type: Literal["cancel"] = "cancel"


ClientMessage = StartMessage | TextMessage | FlushMessage | EndMessage | CancelMessage
CLIENT_MESSAGES: TypeAdapter[ClientMessage] = TypeAdapter(Annotated[ClientMessage, Field(discriminator="type")])


# Server to client


class StartedMessage(_Message):
    """The stream is open; everything the client left open is filled in."""

    type: Literal["started"] = "started"
    session: str
    voice: str
    format: Codec
    sample_rate: int
    channels: Literal[1] = 1


class WordTiming(_Message):
    """One word: offsets in characters of all text sent so far, times in seconds of the audio."""

    text: str
    start_char: int
    end_char: int
    start_s: float
    end_s: float


class WordBegin(_Message):
    """One word that begins to sound: as in ``WordTiming``, its end not known yet."""

    text: str
    start_char: int
    end_char: int
    start_s: float


class OnsetsMessage(_Message):
    """Words that begin in the audio that follows; sent before it."""

    type: Literal["onsets"] = "onsets"
    words: tuple[WordBegin, ...]


class TimestampsMessage(_Message):
    """Words whose times became known; sent before the audio of the same chunk."""

    type: Literal["timestamps"] = "timestamps"
    words: tuple[WordTiming, ...]


class WarningMessage(_Message):
    """Something in the text is not spoken as written; ``start``/``end`` are offsets in the text sent."""

    type: Literal["warning"] = "warning"
    code: str
    message: str
    start: int
    end: int


class FlushedMessage(_Message):
    """All audio of the text before one ``flush`` has been sent."""

    type: Literal["flushed"] = "flushed"


class SpeculationMessage(_Message):
    """One entry per token decision behind the audio that follows: true = drafted and accepted."""

    type: Literal["speculation"] = "speculation"
    accepted: tuple[bool, ...]


class FinishedMessage(_Message):
    """The stream is over and closes with 1000. ``stats`` is null when it was cancelled."""

    type: Literal["end"] = "end"
    reason: Literal["complete", "cancelled"]
    stats: dict[str, Any] | None


class ErrorMessage(_Message):
    """The stream failed; the close code that follows is ``CLOSE_CODES[code]``."""

    type: Literal["error"] = "error"
    code: ErrorCode
    message: str
    field: str | None = None
    retry_after_ms: int | None = None  # with overloaded: when there may be room


ServerMessage = (
    StartedMessage
    | OnsetsMessage
    | TimestampsMessage
    | WarningMessage
    | FlushedMessage
    | SpeculationMessage
    | FinishedMessage
    | ErrorMessage
)
SERVER_MESSAGES: TypeAdapter[ServerMessage] = TypeAdapter(Annotated[ServerMessage, Field(discriminator="type")])


def parse(data: str) -> ClientMessage:
    """One client message from its JSON. Raises ``SpeechError`` naming the field, its value and what is allowed."""
    try:
        return CLIENT_MESSAGES.validate_json(data)
    except ValidationError as error:
        raise _explain(error) from None


def _explain(error: ValidationError) -> SpeechError:
    # Only the first problem is reported: the client has to fix that one in any case.
    first = error.errors(include_url=False)[0]
    kind, value, place = first["type"], _short(first["input"]), first["loc"]
    message = str(place[0]) if place else "message"
    name = str(place[1]) if len(place) > 1 else None
    allowed_types = "allowed: start, text, flush, end, cancel"
    if kind == "json_invalid":
        return SpeechError(ErrorCode.INVALID_JSON, f"message is not JSON: {first['ctx']['error']}")
    if kind == "union_tag_not_found":
        return SpeechError(ErrorCode.MISSING_FIELD, f"type is missing; {allowed_types}", "type")
    if kind == "union_tag_invalid":
        return SpeechError(ErrorCode.INVALID_VALUE, f"type is {_short(first['ctx']['tag'])}; {allowed_types}", "type")
    if name is None:
        return SpeechError(ErrorCode.INVALID_VALUE, f"{message} is {value}; allowed: a JSON object")
    if kind == "extra_forbidden":
        allowed = ", ".join(_FIELDS[message])
        return SpeechError(
            ErrorCode.UNKNOWN_FIELD, f"{name} (value {value}) is not a field of {message}; allowed: {allowed}", name
        )
    if kind == "missing":
        return SpeechError(ErrorCode.MISSING_FIELD, f"{name} is missing in {message}", name)
    allowed = first["msg"].removeprefix("Input should be ")
    return SpeechError(ErrorCode.INVALID_VALUE, f"{name} is {value}; allowed: {allowed}", name)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


_FIELDS: dict[str, tuple[str, ...]] = {
    str(cls.model_fields["type"].default): tuple(cls.model_fields)
    for cls in (StartMessage, TextMessage, FlushMessage, EndMessage, CancelMessage)
}
