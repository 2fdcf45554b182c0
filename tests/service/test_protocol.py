"""The state machine alone: no socket, no engine, no clock."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from service import actions as wire
from service.actions import Action
from service.messages import CLOSE_CODES, ErrorCode, ErrorMessage, FinishedMessage, StartedMessage
from service.options import ServerOptions
from service.protocol import State, StreamProtocol
from service.speech import Piece
from tests.service.fake_engine import FRAME, INFO, RATE
from tts_spec.audio.formats import AudioFormat
from tts_spec.types import SpeechError, SpeechStats, SpeechWarning, Word, WordOnset

OPTIONS = ServerOptions(max_message_bytes=300, max_text_chars=100)
STATS = SpeechStats(
    audio_s=0.1,
    wall_s=0.1,
    rounds_s=0.1,
    first_audio_ms=1.0,
    tokens=4,
    target_passes=2,
    drafted=4,
    accepted=2,
    tried_by_codebook=(1, 1, 1, 1),
    accepted_by_codebook=(1, 1, 0, 0),
    drafter="model",
    gamma=4,
    seed=0,
    token_hash="00",
)
FRAME_S = FRAME / RATE
SILENCE = bytes(2 * FRAME)
MESSAGES: dict[str, dict[str, Any]] = {
    "start": {"type": "start"},
    "text": {"type": "text", "text": "Hello"},
    "flush": {"type": "flush"},
    "end": {"type": "end"},
    "cancel": {"type": "cancel"},
}


def make(*before: str, **start: Any) -> StreamProtocol:
    """A protocol that has already seen these messages."""
    machine = StreamProtocol(INFO, OPTIONS)
    for name in before:
        machine.feed(json.dumps(MESSAGES[name] | (start if name == "start" else {})))
    return machine


def feed(machine: StreamProtocol, name: str, **fields: Any) -> Sequence[Action]:
    return machine.feed(json.dumps(MESSAGES[name] | fields))


def names(actions: Sequence[Action]) -> list[str]:
    return [action.message.type if isinstance(action, wire.Send) else type(action).__name__ for action in actions]


def error_of(actions: Sequence[Action]) -> ErrorMessage:
    (message,) = [each.message for each in actions if isinstance(each, wire.Send)]
    assert isinstance(message, ErrorMessage)
    (close,) = [each for each in actions if isinstance(each, wire.Close)]
    assert close.code == CLOSE_CODES[message.code]
    return message


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize(
    ("before", "state"), [((), State.NEW), (("start",), State.OPEN), (("start", "end"), State.ENDING)]
)
def test_e39_every_message_in_every_state(before: tuple[str, ...], state: State, name: str) -> None:
    machine = make(*before)
    assert machine.state is state
    actions = feed(machine, name)
    if name in state.allowed:
        assert "error" not in names(actions)
        return
    error = error_of(actions)
    assert error.code is ErrorCode.UNEXPECTED_MESSAGE
    assert error.message == f"{name} is not allowed in state {state.name.lower()}; allowed: {', '.join(state.allowed)}"
    assert machine.state is State.CLOSED


def test_start_says_what_was_chosen() -> None:
    actions = feed(make(), "start", format="pcm_f32le", seed=5)
    assert names(actions) == ["Open", "started"]
    assert isinstance(actions[0], wire.Open)
    assert actions[0].options.seed == 5
    assert isinstance(actions[1], wire.Send)
    started = actions[1].message
    assert isinstance(started, StartedMessage)
    assert (started.voice, started.format, started.sample_rate) == ("ada", "pcm_f32le", RATE)


def test_voices_may_be_mixed() -> None:
    actions = feed(make(), "start", voice="ada(2)+ben")
    assert isinstance(actions[0], wire.Open)
    assert actions[0].options.voice == "ada(2)+ben"


def test_sessions_have_names_of_their_own() -> None:
    """Complaint 32: one default request id for everyone collides."""
    assert make().session != make().session


def test_any_format_and_rate_may_be_chosen() -> None:
    actions = feed(make(), "start", format="mp3", sample_rate=44_100, bitrate=128_000)
    assert isinstance(actions[0], wire.Open)
    assert actions[0].format == AudioFormat("mp3", 44_100, 128_000)


def test_a_rate_the_format_does_not_have_is_refused() -> None:
    error = error_of(feed(make(), "start", format="ulaw", sample_rate=16_000))
    assert (error.code, error.field) == (ErrorCode.INVALID_VALUE, "sample_rate")
    assert "16000; allowed: 8000" in error.message


def test_a_piece_without_bytes_sends_no_empty_frame() -> None:
    """A codec that works in frames keeps a short piece back."""
    assert names(make("start").event(Piece(b"", 0, FRAME_S))) == ["Consumed"]


def test_a_piece_is_told_in_order() -> None:
    machine = make("start", timestamps=True, speculation=True)
    chunk = Piece(
        SILENCE,
        0,
        FRAME_S,
        words=(Word("Hello", 0, 5, 0.0, 0.1),),
        onsets=(WordOnset("you", 6, 9, 0.1),),
        warnings=(SpeechWarning("x", "y", 0, 1),),
        accepted=(True, False),
        flushed=1,
        stats=STATS,
    )
    assert names(machine.event(chunk)) == [
        "warning", "onsets", "timestamps", "speculation", "SendAudio", "flushed", "Consumed", "end", "Over", "Close",
    ]  # fmt: skip
    assert machine.state is State.CLOSED


def test_extras_are_sent_only_when_asked_for() -> None:
    chunk = Piece(
        SILENCE, 0, FRAME_S, (Word("Hello", 0, 5, 0.0, 0.1),), (WordOnset("Hello", 0, 5, 0.0),), accepted=(True,)
    )
    assert names(make("start").event(chunk)) == ["SendAudio", "Consumed"]


def test_empty_text_is_a_sign_of_life_only() -> None:
    assert feed(make("start"), "text", text="") == ()


def test_text_over_the_limit_of_the_stream() -> None:
    machine = make("start")
    assert names(feed(machine, "text", text="x" * 100)) == ["Feed"]
    error = error_of(feed(machine, "text", text="x"))
    assert (error.code, error.field) == (ErrorCode.TOO_LONG, "text")
    assert "101" in error.message
    assert "allowed: 100" in error.message


@pytest.mark.parametrize("letter", ["x", "é", "語", "🙂"])
def test_message_size_is_counted_in_bytes(letter: str) -> None:
    frame = json.dumps(MESSAGES["text"] | {"text": ""}, ensure_ascii=False)
    room = OPTIONS.max_message_bytes - len(frame.encode())
    fits = frame.replace('""', f'"{letter * (room // len(letter.encode()))}"')
    error = error_of(make("start").feed(fits + " " * (OPTIONS.max_message_bytes + 1 - len(fits.encode()))))
    assert error.code is ErrorCode.TOO_BIG
    assert "301 bytes; allowed: up to 300" in error.message
    assert "too_big" not in str(make("start").feed(fits))


def test_binary_frames_are_refused() -> None:
    assert error_of(make("start").feed(b"\x00\x01")).code is ErrorCode.UNSUPPORTED_DATA


def test_engine_errors_keep_their_code_if_it_is_documented() -> None:
    assert error_of(make("start").fail(SpeechError("too_long", "m", "text"))).code is ErrorCode.TOO_LONG
    assert error_of(make("start").event(SpeechError("model_broke", "m"))).code is ErrorCode.INTERNAL


def test_abandon_replaces_a_close_that_was_never_written() -> None:
    machine = make("start", "end")
    machine.event(Piece(SILENCE, 0, FRAME_S, stats=STATS))
    actions = machine.abandon(SpeechError("slow_reader", "m"))
    assert names(actions) == ["Drop", "error", "Over", "Close", "Cancel"]


def test_whose_turn_it_is() -> None:
    assert make().waits_for_client
    assert make("start", "text").waits_for_client
    machine = make("start", "text", "flush")
    assert not machine.waits_for_client
    machine.event(Piece(SILENCE, 0, FRAME_S, flushed=1))
    assert machine.waits_for_client
    assert not make("start", "end").waits_for_client


class AnyLife(RuleBasedStateMachine):
    """Any client against any engine: the promises that hold over the whole life of a stream."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = StreamProtocol(INFO, OPTIONS)
        self.actions: list[Action] = []
        self.opened = False

    def _do(self, actions: Sequence[Action]) -> None:
        if any(isinstance(each, wire.Close) for each in self.actions):
            assert not actions, "something after the close"
        self.opened = self.opened or any(isinstance(each, wire.Open) for each in actions)
        self.actions.extend(actions)

    @rule(name=st.sampled_from(list(MESSAGES)))
    def client_says(self, name: str) -> None:
        legal = name in self.machine.state.allowed
        was_closed = self.machine.state is State.CLOSED
        actions = feed(self.machine, name)
        assert ("error" in names(actions)) == (not legal and not was_closed)
        self._do(actions)

    @rule(frame=st.text(max_size=20) | st.binary(max_size=20))
    def client_babbles(self, frame: str | bytes) -> None:
        self._do(self.machine.feed(frame))
        assert self.machine.state is State.CLOSED

    @rule(frames=st.integers(0, 3), flushed=st.integers(0, 1), accepted=st.lists(st.booleans(), max_size=3))
    def engine_speaks(self, frames: int, flushed: int, accepted: list[bool]) -> None:
        if self.opened:
            audio = frames * SILENCE
            self._do(self.machine.event(Piece(audio, 0, frames * FRAME_S, accepted=tuple(accepted), flushed=flushed)))

    @rule()
    def engine_ends(self) -> None:
        if self.opened:
            self._do(self.machine.event(Piece(SILENCE, 0, FRAME_S, stats=STATS)))

    @rule(code=st.sampled_from([*ErrorCode, "something_else"]), from_engine=st.booleans())
    def it_fails(self, code: str, from_engine: bool) -> None:
        error = SpeechError(code, "broken")
        self._do(self.machine.event(error) if from_engine and self.opened else self.machine.fail(error))

    @invariant()
    def started_comes_first_and_the_end_is_said_before_the_close(self) -> None:
        sent = [each for each in self.actions if isinstance(each, wire.Send | wire.SendAudio | wire.Close)]
        said = [each.message for each in sent if isinstance(each, wire.Send)]
        if any(isinstance(each, wire.SendAudio) for each in sent):
            assert isinstance(said[0], StartedMessage)
        if sent and isinstance(sent[-1], wire.Close):
            last = said[-1]
            assert sent[-2] == wire.Send(last)
            assert isinstance(last, ErrorMessage | FinishedMessage)
            assert sent[-1].code == (CLOSE_CODES[last.code] if isinstance(last, ErrorMessage) else 1000)
            assert self.machine.state is State.CLOSED

    @invariant()
    def the_engine_session_is_opened_once_and_never_forgotten(self) -> None:
        kinds = names(self.actions)
        assert kinds.count("Open") <= 1
        complete = any(
            isinstance(each, wire.Send)
            and isinstance(each.message, FinishedMessage)
            and each.message.reason == "complete"
            for each in self.actions
        )
        if self.opened and self.machine.state is State.CLOSED and not complete:
            assert kinds[-1] == "Cancel"


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(deadline=None, max_examples=60, stateful_step_count=15)
