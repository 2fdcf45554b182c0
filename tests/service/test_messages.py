"""Client messages: what is not right is refused with the field, its value and what is allowed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.messages import CLIENT_MESSAGES, CLOSE_CODES, ErrorCode, StartMessage, TextMessage, parse
from tts_spec.types import Budget, SpeakOptions, SpeechError

# (frame, code, field, what the message must contain)
BAD: list[tuple[str, ErrorCode, str | None, list[str]]] = [
    ("hello", ErrorCode.INVALID_JSON, None, ["JSON"]),
    ('{"type": "text", "text": "a"', ErrorCode.INVALID_JSON, None, ["JSON"]),
    ('{"type": "text", "text": "\\ud800"}', ErrorCode.INVALID_JSON, None, ["JSON"]),
    ("[]", ErrorCode.INVALID_VALUE, None, ["object"]),
    ('"start"', ErrorCode.INVALID_VALUE, None, ["'start'", "object"]),
    ("null", ErrorCode.INVALID_VALUE, None, ["object"]),
    ("{}", ErrorCode.MISSING_FIELD, "type", ["start, text, flush, end, cancel"]),
    ('{"type": "stop"}', ErrorCode.INVALID_VALUE, "type", ["'stop'", "start, text, flush, end, cancel"]),
    ('{"type": 3}', ErrorCode.INVALID_VALUE, "type", ["3", "start, text, flush, end, cancel"]),
    ('{"type": "text"}', ErrorCode.MISSING_FIELD, "text", ["text is missing"]),
    ('{"type": "text", "text": null}', ErrorCode.INVALID_VALUE, "text", ["None", "string"]),
    ('{"type": "text", "text": 7}', ErrorCode.INVALID_VALUE, "text", ["7", "string"]),
    ('{"type": "text", "text": "a", "flush": true}', ErrorCode.UNKNOWN_FIELD, "flush", ["True", "type, text"]),
    ('{"type": "end", "now": 1}', ErrorCode.UNKNOWN_FIELD, "now", ["1", "allowed: type"]),
    ('{"type": "start", "speaker": "ada"}', ErrorCode.UNKNOWN_FIELD, "speaker", ["'ada'", "voice, format"]),
    ('{"type": "start", "format": "mp4"}', ErrorCode.INVALID_VALUE, "format", ["'mp4'", "pcm_s16le", "pcm_f32le", "flac"]),
    ('{"type": "start", "speed": "1.0"}', ErrorCode.INVALID_VALUE, "speed", ["'1.0'", "number"]),
    ('{"type": "start", "speed": NaN}', ErrorCode.INVALID_VALUE, "speed", ["nan", "finite number"]),
    ('{"type": "start", "seed": 1.5}', ErrorCode.INVALID_VALUE, "seed", ["1.5", "integer"]),
    ('{"type": "start", "timestamps": 1}', ErrorCode.INVALID_VALUE, "timestamps", ["1", "boolean"]),
    ('{"type": "start", "mode": "lossy"}', ErrorCode.INVALID_VALUE, "mode", ["'lossy'", "coupled", "ratio"]),
    ('{"type": "start", "drafter": "magic"}', ErrorCode.INVALID_VALUE, "drafter", ["'magic'", "none", "model"]),
]  # fmt: skip
OUT_OF_RANGE: list[tuple[str, Any, str]] = [
    ("speed", 0.1, "a number from"),
    ("speed", 9, "a number from"),
    ("temperature", -0.1, "0 to 2"),
    ("top_k", -1, "0 to"),
    ("top_p", 0, "to 1"),
    ("repetition_penalty", 0.5, "1 to 2"),
    ("seed", -1, "0 to"),
    ("seed", 2**63, "0 to"),
    ("gamma", 16, "0 to 15"),
]


@pytest.mark.parametrize(("frame", "code", "field", "parts"), BAD)
def test_e40_bad_input_names_field_value_and_allowed(
    frame: str, code: ErrorCode, field: str | None, parts: list[str]
) -> None:
    with pytest.raises(SpeechError) as caught:
        parse(frame)
    assert caught.value.code == code
    assert caught.value.field == field
    for part in [*parts, field or ""]:
        assert part in caught.value.message


@pytest.mark.parametrize(("field", "value", "allowed"), OUT_OF_RANGE)
def test_e40_out_of_range_names_field_value_and_allowed(field: str, value: object, allowed: str) -> None:
    message = parse(json.dumps({"type": "start", field: value}))
    assert isinstance(message, StartMessage)
    with pytest.raises(SpeechError) as caught:
        message.speak_options()
    assert (caught.value.code, caught.value.field) == ("invalid_value", field)
    assert f"{field} is {value}" in caught.value.message
    assert allowed in caught.value.message


def test_a_long_bad_value_is_quoted_in_part() -> None:
    with pytest.raises(SpeechError) as caught:
        parse(json.dumps({"type": "start", "voice": ["x" * 10_000]}))
    assert len(caught.value.message) < 200


def test_start_hands_every_speak_option_on() -> None:
    fields = {
        "voice": "ada", "speed": 1.25, "seed": 7, "temperature": 0.5, "top_k": 9, "top_p": 0.9,
        "repetition_penalty": 1.1, "drafter": "none", "gamma": 3, "mode": "ratio",
        "live": False, "max_wait_ms": 300.0,
    }  # fmt: skip
    message = parse(json.dumps({"type": "start", **fields, "budget": {"first_audio_ms": 80}}))
    assert isinstance(message, StartMessage)
    assert message.speak_options() == SpeakOptions(**fields, budget=Budget(first_audio_ms=80.0))  # type: ignore[arg-type]
    assert {*fields, "budget"} == set(SpeakOptions.__dataclass_fields__)
    plain = parse('{"type": "start"}')
    assert isinstance(plain, StartMessage)
    assert plain.speak_options() == SpeakOptions()


@given(st.text())
@settings(deadline=None, max_examples=50)
def test_any_text_arrives_as_sent(text: str) -> None:
    assert parse(json.dumps({"type": "text", "text": text}, ensure_ascii=False)) == TextMessage(text=text)


@given(st.text() | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(json.dumps))
@settings(deadline=None, max_examples=100)
def test_any_frame_is_a_message_or_a_documented_error(frame: str) -> None:
    try:
        message = parse(frame)
    except SpeechError as error:
        CLOSE_CODES[ErrorCode(error.code)]
    else:
        assert CLIENT_MESSAGES.validate_json(message.model_dump_json()) == message
