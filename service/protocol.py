"""The native protocol's state machine: what came in, what to do about it. Does no I/O and starts nothing.

The shell (``session.py``) hands it client frames, pieces of speech and failures, and carries out the actions it returns.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict
from enum import Enum

from service.actions import Action, Cancel, Close, Consumed, Drop, End, Feed, Flush, Open, Over, Send, SendAudio
from service.messages import (
    CLOSE_CODES,
    CancelMessage,
    ClientMessage,
    EndMessage,
    ErrorCode,
    ErrorMessage,
    FinishedMessage,
    FlushedMessage,
    FlushMessage,
    OnsetsMessage,
    SpeculationMessage,
    StartedMessage,
    StartMessage,
    TextMessage,
    TimestampsMessage,
    WarningMessage,
    WordBegin,
    WordTiming,
    parse,
)
from service.options import ServerOptions
from service.speech import Piece
from tts_spec.engine.port import EngineInfo
from tts_spec.types import SpeechError


class State(Enum):
    """Where a stream is in its life, and the client messages that are legal there."""

    NEW = ("start",)
    OPEN = ("text", "flush", "end", "cancel")
    ENDING = ("cancel",)
    CLOSED = ()

    @property
    def allowed(self) -> tuple[str, ...]:
        names: tuple[str, ...] = self.value
        return names


class StreamProtocol:
    """One stream from its first frame to its close. Every method returns actions to carry out in order.

    After a ``Close`` has been returned late engine events and client frames have no effect.
    """

    def __init__(self, info: EngineInfo, options: ServerOptions, session: str | None = None) -> None:
        self.state = State.NEW
        self.session = session or uuid.uuid4().hex
        self._info = info
        self._options = options
        self.idle_s = options.idle_s
        self._start = StartMessage()
        self._text_chars = 0
        self._flushes = 0  # asked for and not yet reported

    @property
    def waits_for_client(self) -> bool:
        """The client owes the next step; otherwise the engine does, or the stream is over."""
        return self.state is State.NEW or (self.state is State.OPEN and not self._flushes)

    @property
    def busy(self) -> bool:
        """A stream was started and is not over."""
        return self.state in (State.OPEN, State.ENDING)

    # What the client does

    def feed(self, data: str | bytes) -> Sequence[Action]:
        """A frame from the client: text (str) or binary (bytes)."""
        if self.state is State.CLOSED:
            return ()
        try:
            return self._message(self._read(data))
        except SpeechError as error:
            return self.fail(error)

    def _read(self, data: str | bytes) -> ClientMessage:
        if isinstance(data, bytes):
            raise SpeechError(
                ErrorCode.UNSUPPORTED_DATA,
                f"got a binary frame of {len(data)} bytes; allowed: JSON messages in text frames",
            )
        limit = self._options.max_message_bytes
        # A character has at most four bytes: count them only when it can matter.
        if len(data) * 4 > limit and (size := len(data.encode())) > limit:
            raise SpeechError(ErrorCode.TOO_BIG, f"message has {size} bytes; allowed: up to {limit}")
        return parse(data)

    def _message(self, message: ClientMessage) -> Sequence[Action]:
        if message.type not in self.state.allowed:
            allowed = ", ".join(self.state.allowed)
            raise SpeechError(
                ErrorCode.UNEXPECTED_MESSAGE,
                f"{message.type} is not allowed in state {self.state.name.lower()}; allowed: {allowed}",
                "type",
            )
        match message:
            case StartMessage():
                return self._open(message)
            case TextMessage(text=""):
                return ()
            case TextMessage():
                return self._feed(message.text)
            case FlushMessage():
                self._flushes += 1
                return (Flush(),)
            case EndMessage():
                self.state = State.ENDING
                return (End(),)
            case CancelMessage():
                self.state = State.CLOSED
                finished = FinishedMessage(reason="cancelled", stats=None)
                return Drop(), Send(finished), Over("cancelled"), Close(1000, "cancelled"), Cancel()

    def _open(self, start: StartMessage) -> Sequence[Action]:
        options, audio_format = start.speak_options(), start.audio_format()
        self._start = start
        self.state = State.OPEN
        started = StartedMessage(
            session=self.session,
            voice=start.voice if start.voice is not None else self._info.voices[0].name,
            format=start.format,
            sample_rate=start.sample_rate,
        )
        return Open(options, audio_format), Send(started)

    def _feed(self, text: str) -> Sequence[Action]:
        self._text_chars += len(text)
        limit = self._options.max_text_chars
        if self._text_chars > limit:
            raise SpeechError(
                ErrorCode.TOO_LONG, f"text of this stream has {self._text_chars} characters; allowed: {limit}", "text"
            )
        return (Feed(text),)

    # What is spoken

    def event(self, event: Piece | SpeechError, key: str = "") -> Sequence[Action]:
        """Something the stream reported."""
        if self.state is State.CLOSED:
            return ()
        if isinstance(event, SpeechError):
            return self.fail(event)
        actions = self._piece(event)
        if event.stats is not None:
            self.state = State.CLOSED
            actions.append(Send(FinishedMessage(reason="complete", stats=event.stats.as_dict())))
            actions.append(Over("complete"))
            actions.append(Close(1000, "complete"))
        return actions

    def _piece(self, piece: Piece) -> list[Action]:
        # What describes the audio goes ahead of it, so that a player can show it in time.
        actions: list[Action] = [Send(WarningMessage(**asdict(warning))) for warning in piece.warnings]
        if self._start.timestamps and piece.onsets:
            actions.append(Send(OnsetsMessage(words=tuple(WordBegin(**asdict(onset)) for onset in piece.onsets))))
        if self._start.timestamps and piece.words:
            actions.append(Send(TimestampsMessage(words=tuple(WordTiming(**asdict(word)) for word in piece.words))))
        if self._start.speculation and piece.accepted:
            actions.append(Send(SpeculationMessage(accepted=piece.accepted)))
        if piece.audio:
            actions.append(SendAudio(piece.audio, piece.seconds))
        actions.extend([Send(FlushedMessage())] * piece.flushed)
        self._flushes -= piece.flushed
        actions.append(Consumed())
        return actions

    # What goes wrong

    def fail(self, error: SpeechError, key: str | None = None) -> Sequence[Action]:
        """The stream cannot go on, whoever found out: say why, then close."""
        return () if self.state is State.CLOSED else self._last_words(error)

    def abandon(self, error: SpeechError) -> Sequence[Action]:
        """What was to be sent cannot be: forget it, even a ``Close`` that is still waiting, and say why."""
        return Drop(), *self._last_words(error)

    def _last_words(self, error: SpeechError) -> Sequence[Action]:
        self.state = State.CLOSED
        # A code the protocol does not document is the server's fault, not the client's.
        code = ErrorCode(error.code) if error.code in set(ErrorCode) else ErrorCode.INTERNAL
        message = ErrorMessage(code=code, message=error.message, field=error.field, retry_after_ms=error.retry_after_ms)
        return Send(message), Over(code), Close(CLOSE_CODES[code], code.value), Cancel()
