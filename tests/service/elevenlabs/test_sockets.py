"""The two sockets' state machines alone: no socket, no engine, no clock."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from service import actions as wire
from service.actions import Action
from service.elevenlabs.settings import plain_settings, read_settings
from service.elevenlabs.sockets import MAX_CONTEXTS, MAX_FRAME_BYTES, SETTINGS_CHANGED, MultiStreamInput, StreamInput
from service.messages import ErrorCode
from service.options import ServerOptions
from service.speech import Piece
from service.voices import VoiceBook
from tests.service.fake_engine import INFO
from tests.service.test_protocol import STATS
from tts_spec.audio.formats import AudioFormat
from tts_spec.types import SpeechError

OPTIONS = ServerOptions(max_message_bytes=2000, max_text_chars=500)
VOICES = VoiceBook(INFO.voices, {})
SETTINGS = replace(plain_settings(OPTIONS), format=AudioFormat())
BOS = {"text": " ", "voice_settings": {"stability": 0.5}}
AUDIO = Piece(bytes(1200), 0.0, 0.025)
LAST = Piece(bytes(1200), 0.025, 0.05, stats=STATS)


def single(*before: dict[str, Any], **settings: Any) -> StreamInput:
    machine = StreamInput(replace(SETTINGS, **settings))
    for message in before:
        feed(machine, **message)
    return machine


def multi(*before: dict[str, Any], **settings: Any) -> MultiStreamInput:
    machine = MultiStreamInput(replace(SETTINGS, **settings))
    for message in before:
        feed(machine, **message)
    return machine


def feed(machine: StreamInput | MultiStreamInput, **message: Any) -> list[Action]:
    return list(machine.feed(json.dumps(message)))


def said(actions: Sequence[Action]) -> list[dict[str, Any]]:
    return [json.loads(each.message.model_dump_json()) for each in actions if isinstance(each, wire.Send)]


def kinds(actions: Sequence[Action]) -> list[str]:
    return [type(each).__name__ for each in actions]


def key_of(actions: Sequence[Action]) -> str:
    (opened,) = [each for each in actions if isinstance(each, wire.Open)]
    return opened.key


# What the URL says


def test_the_url_is_read_leniently() -> None:
    query = {"model_id": "Ellipsis", "language_code": "xx", "whatever": "1", "output_format": "pcm_16000", "seed": "7"}
    found = read_settings("alloy", query, VOICES, OPTIONS)
    assert (found.format, found.options.seed, found.options.voice) == (AudioFormat("pcm_s16le", 16_000), 7, "ada")
    assert (found.auto_mode, found.inactivity_s) == (False, 20.0)
    assert (
        read_settings("ben", {"inactivity_timeout": "9999", "auto_mode": "true"}, VOICES, OPTIONS).inactivity_s == 180
    )


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("mp3_44100_128", AudioFormat("mp3", 44_100, 128_000)),
        ("mp3_22050_32", AudioFormat("mp3", 22_050, 32_000)),
        ("opus_48000_64", AudioFormat("opus", 48_000, 64_000)),
        ("ulaw_8000", AudioFormat("ulaw", 8_000)),
        ("alaw_8000", AudioFormat("alaw", 8_000)),
        *((f"pcm_{rate}", AudioFormat("pcm_s16le", rate)) for rate in (8000, 16000, 22050, 24000, 32000, 44100, 48000)),
    ],
)
def test_output_formats(name: str, found: AudioFormat) -> None:
    assert read_settings("ada", {"output_format": name}, VOICES, OPTIONS).format == found


@pytest.mark.parametrize(
    ("voice", "query", "field"),
    [
        ("nobody", {}, "voice"),
        ("ada(2)+nobody", {}, "voice"),
        ("ada", {"output_format": "mp4_44100"}, "output_format"),
        ("ada", {"output_format": "ulaw_16000"}, "output_format"),
        ("ada", {"seed": "-1"}, "seed"),
        ("ada", {"inactivity_timeout": "soon"}, "inactivity_timeout"),
    ],
)
def test_what_cannot_be_is_refused_by_name(voice: str, query: dict[str, str], field: str) -> None:
    with pytest.raises(SpeechError) as caught:
        read_settings(voice, query, VOICES, OPTIONS)
    assert caught.value.field == field


# stream-input


def test_a_stream_from_the_first_message_to_the_close() -> None:
    machine = single()
    assert feed(machine, **BOS) == []
    actions = feed(machine, text="Hello there. ", try_trigger_generation=True)
    assert kinds(actions) == ["Open", "Feed"]
    key = key_of(actions)
    (frame,) = said(machine.event(AUDIO, key))
    assert base64.b64decode(frame["audio"]) == AUDIO.audio
    assert frame["isFinal"] is None
    assert frame["alignment"] == frame["normalizedAlignment"]
    assert feed(machine, text="") == [wire.End(key)]
    actions = list(machine.event(LAST, key))
    assert kinds(actions) == ["Send", "Consumed", "Send", "Over", "Close"]
    final = said(actions)[-1]
    assert (final["audio"], final["isFinal"], final["is_final"], final["alignment"]) == (None, True, True, None)
    assert actions[-1] == wire.Close(1000, "complete")


def test_h52_an_end_without_words_is_final_at_once() -> None:
    for before in ([], [BOS], [BOS, {"text": "  "}, {"text": " "}]):
        actions = feed(single(*before), text="")
        assert said(actions)[-1]["isFinal"] is True
        assert kinds(actions) == ["Send", "Over", "Close"]


def test_white_space_alone_neither_opens_nor_repeats() -> None:
    machine = single(BOS)
    assert feed(machine, text=" ") == []
    assert kinds(feed(machine, text="word")) == ["Open", "Feed"]
    assert kinds(feed(machine, text=" ")) == ["Feed"]  # it parts two words
    assert feed(machine, text=" ") == []


def test_flush_is_passed_on() -> None:
    machine = single(BOS)
    assert kinds(feed(machine, text="last words", flush=True)) == ["Open", "Feed", "Flush"]
    assert kinds(feed(machine, text=" ", flush=True)) == ["Feed", "Flush"]


@pytest.mark.parametrize(("text", "flushed"), [("One sentence. ", True), ('"Really?" ', True), ("half a ", False)])
def test_auto_mode_does_not_wait_for_what_follows_a_sentence(text: str, flushed: bool) -> None:
    assert ("Flush" in kinds(feed(single(BOS, auto_mode=True), text=text))) == flushed
    assert "Flush" not in kinds(feed(single(BOS), text=text))


@pytest.mark.parametrize("again", [None, {}, {"stability": 0.5}])
def test_e40_the_same_voice_settings_may_be_repeated(again: Any) -> None:
    machine = single(BOS, {"text": "Hello "})
    assert kinds(feed(machine, text="there ", voice_settings=again)) == ["Feed"]


@pytest.mark.parametrize(
    "first", [{"text": " "}, {"text": " ", "voice_settings": None}, {"text": " ", "voice_settings": {}}]
)
def test_e40_voice_settings_may_come_late_if_nothing_was_said(first: dict[str, Any]) -> None:
    machine = single(first)
    actions = feed(machine, text="Hello ", voice_settings={"speed": 1.2})
    (opened,) = [each for each in actions if isinstance(each, wire.Open)]
    assert opened.options.speed == 1.2


def test_e40_changed_voice_settings_are_an_error_with_the_known_words() -> None:
    actions = feed(single(BOS, {"text": "Hello "}), text="there ", voice_settings={"stability": 0.9})
    (error,) = said(actions)
    assert (error["message"], error["error"], error["code"]) == (SETTINGS_CHANGED, "policy_violation", 1008)
    assert "Close" in kinds(actions)


def test_speeds_beyond_the_voice() -> None:
    actions = feed(single({"text": " ", "voice_settings": {"speed": 2.8}}), text="Hello ")
    (opened,) = [each for each in actions if isinstance(each, wire.Open)]
    assert (opened.options.speed, opened.tempo) == (1.4, pytest.approx(2.0))


@pytest.mark.parametrize("field", ["xi_api_key", "xi-api-key", "authorization"])
def test_the_key_may_come_in_the_first_message(field: str) -> None:
    assert feed(single(), **BOS, **{field: "Bearer k" if field == "authorization" else "k"})[0] == wire.Authenticate(
        "k"
    )
    assert "Authenticate" not in kinds(feed(single(BOS), text="Hello ", **{field: "k"}))


@pytest.mark.parametrize(
    ("frame", "name", "code"),
    [
        ("{", "invalid_json", 1007),
        ("[]", "invalid_value", 1007),
        ('{"text": 3}', "invalid_value", 1007),
        ('{"text": "a", "flush": "yes"}', "invalid_value", 1007),
        ('{"text": "\\ud800"}', "invalid_json", 1007),
        (b"\x00", "unsupported_data", 1003),
        (json.dumps({"text": "x" * 501}), "max_character_limit_exceeded", 1009),
        (json.dumps({"text": "x" * 2001}), "too_big", 1009),
    ],
)
def test_bad_frames_are_told_why(frame: str | bytes, name: str, code: int) -> None:
    for machine in (single(), multi()):
        actions = machine.feed(frame)
        (error,) = said(actions)
        assert (error["error"], error["code"]) == (name, code)
        assert error["message"]
        assert wire.Close(code, name) in actions
        assert machine.feed(json.dumps(BOS)) == ()


def test_large_pieces_go_in_frames_every_client_reads() -> None:
    machine = single()
    key = key_of(feed(machine, text="Hello "))
    frames = said(machine.event(Piece(bytes(10 * MAX_FRAME_BYTES + 2), 0.0, 7.5, stats=STATS), key))
    *parts, _ = frames
    assert len(parts) == 11
    assert max(len(json.dumps(part)) for part in parts) < 64 * 1024
    assert sum(len(base64.b64decode(part["audio"])) for part in parts) == 10 * MAX_FRAME_BYTES + 2
    spans = [part["alignment"]["charStartTimesMs"][-1] + part["alignment"]["charDurationsMs"][-1] for part in parts]
    assert sum(spans) == 7500


def test_bytes_the_encoder_keeps_back_are_spanned_when_they_come() -> None:
    machine = single()
    key = key_of(feed(machine, text="Hello "))
    assert kinds(machine.event(Piece(b"", 0.0, 0.1), key)) == ["Consumed"]
    (frame,) = said(machine.event(Piece(b"x", 0.1, 0.3), key))
    alignment = frame["alignment"]
    assert alignment["charStartTimesMs"][-1] + alignment["charDurationsMs"][-1] == 300


# multi-stream-input


def test_contexts_have_their_own_ends_in_both_spellings() -> None:
    machine = multi()
    key = key_of(feed(machine, text="Hello ", context_id="c1"))
    (frame,) = said(machine.event(AUDIO, key))
    assert frame["contextId"] == frame["context_id"] == "c1"
    feed(machine, context_id="c1", flush=True)
    assert feed(machine, contextId="c1", close_context=True) == [wire.End(key)]
    final = said(machine.event(LAST, key))[-1]
    assert (final["isFinal"], final["is_final"], final["contextId"], final["context_id"]) == (True, True, "c1", "c1")
    assert not machine.busy
    assert key_of(feed(machine, text="Again ", context_id="c1")) != key


@pytest.mark.parametrize("message", [{"text": ""}, {"text": "", "context_id": "c1"}])
def test_an_empty_text_is_a_sign_of_life_only(message: dict[str, Any]) -> None:
    machine = multi({"text": "Hello ", "context_id": "c1"})
    assert feed(machine, **message) == []
    assert machine.busy


@pytest.mark.parametrize(
    "message", [{"flush": True}, {"text": "", "flush": True}, {"text": ""}, {"close_context": True}, {"cancel": True}]
)
def test_e39_nothing_opens_a_context_but_text(message: dict[str, Any]) -> None:
    machine = multi()
    for n in range(20):
        assert feed(machine, context_id=f"ghost{n}", **message) == []
    assert kinds(feed(machine, text="Hello ", context_id="real")) == ["Open", "Feed"]


def test_a_sixth_context_is_refused_and_the_five_live_on() -> None:
    machine = multi(*({"text": "Hello ", "context_id": f"c{n}"} for n in range(MAX_CONTEXTS)))
    (error,) = said(feed(machine, text="Hello ", context_id="c6"))
    assert error["error"] == "max_active_conversations"
    assert error["message"] == "Maximum simultaneous contexts per WebSocket connection exceeded (5)"
    assert (error["code"], error["contextId"]) == (1008, "c6")
    assert kinds(feed(machine, text="more ", context_id="c1")) == ["Feed"]
    feed(machine, context_id="c2", close_context=True)
    assert kinds(feed(machine, text="Hello ", context_id="c6")) == ["Open", "Feed"]


HELLO = {"text": "Hello. ", "context_id": "c"}
PURE = {"context_id": "c", "flush": True}
WITH_TEXT = {"text": "Hello. ", "context_id": "c", "flush": True}


@pytest.mark.parametrize(
    ("before", "close_cancels", "stops"),
    [
        ([HELLO], False, True),  # pipecat, interrupted in mid-turn
        ([HELLO, PURE], False, False),  # pipecat, the end of a turn
        ([HELLO, {"text": "", "context_id": "c", "flush": True}], False, False),  # livekit, the end of a turn
        ([WITH_TEXT], False, False),  # the documents: what was set to flush is finished
        ([WITH_TEXT], True, True),  # livekit, interrupted, where the owner prefers that
        ([HELLO, PURE], True, False),
        ([HELLO, PURE, HELLO], False, True),
        ([HELLO, PURE, {"context_id": "c", "close_context": True}], False, True),  # a second close
    ],
)
def test_e38_close_context_stops_or_finishes(before: list[dict[str, Any]], close_cancels: bool, stops: bool) -> None:
    machine = multi(*before, close_cancels=close_cancels)
    actions = feed(machine, context_id="c", close_context=True)
    if stops:
        assert kinds(actions) == ["Drop", "Cancel", "Send", "Over"]
        assert said(actions)[-1]["isFinal"] is True
        assert not machine.busy
        assert feed(machine, context_id="c", close_context=True) == []
    else:
        assert kinds(actions) == ["End"]
        assert machine.busy


def test_cancel_stops_at_once_whatever_came_before() -> None:
    for before in ([HELLO], [HELLO, PURE], [WITH_TEXT]):
        assert kinds(feed(multi(*before), context_id="c", cancel=True)) == ["Drop", "Cancel", "Send", "Over"]


def test_close_socket_finishes_all_and_closes_after_the_last() -> None:
    machine = multi()
    keys = [key_of(feed(machine, text="Hello ", context_id=name)) for name in ("a", "b")]
    feed(machine, text=" ", context_id="silent")
    actions = feed(machine, close_socket=True)
    assert [each.key for each in actions if isinstance(each, wire.End)] == keys
    assert said(actions)[-1]["contextId"] == "silent"
    assert "Close" not in kinds(machine.event(LAST, keys[0]))
    assert machine.event(LAST, keys[1])[-1] == wire.Close(1000, "complete")
    assert feed(multi(), close_socket=True) == [wire.Close(1000, "complete")]


def test_one_contexts_failure_is_its_own() -> None:
    machine = multi()
    one, two = (key_of(feed(machine, text="Hello ", context_id=name)) for name in ("a", "b"))
    actions = machine.fail(SpeechError(ErrorCode.OVERLOADED, "no room", retry_after_ms=700), one)
    (error,) = said(actions)
    assert (error["error"], error["context_id"], error["retry_after_ms"]) == ("system_busy", "a", 700)
    assert "Close" not in kinds(actions)
    assert said(machine.event(AUDIO, two))
    assert "Close" in kinds(machine.fail(SpeechError(ErrorCode.UNAUTHORIZED, "who?"), two))
