"""ElevenLabs' two sockets as state machines: one stream (``stream-input``), or many contexts (``multi-stream-input``).

Does no I/O and starts nothing; the shell is ``service/session.py``. The rules, also where the service's own documents
disagree with its clients, are in ``service/docs/elevenlabs.md``.
"""

from __future__ import annotations

import base64
import math
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from service.actions import Action, Authenticate, Cancel, Close, Consumed, Drop, End, Feed, Flush, Open, Over, Send
from service.elevenlabs.alignment import CharacterClock
from service.elevenlabs.messages import (
    ERROR_NAMES,
    Alignment,
    AudioFrame,
    ClientFrame,
    ContextAudioFrame,
    ContextErrorFrame,
    ErrorFrame,
    read_frame,
)
from service.elevenlabs.settings import SocketSettings, speed_of
from service.messages import CLOSE_CODES, ErrorCode
from service.speech import Piece, split_speed
from tts_spec.types import SpeechError

MAX_CONTEXTS = 5
MAX_FRAME_BYTES = 36_000  # of audio in one frame: 48,000 in base64, well under what clients read at most (1 MiB)
DEFAULT_CONTEXT = "default"
TOO_MANY = "max_active_conversations"
SENTENCE_ENDS = (".", "!", "?", "…", ":", ";", "\n")
POLICY = "policy_violation"
SETTINGS_CHANGED = (
    "voice_settings field must be provided in the first message and then either be not provided or not change."
)


@dataclass(slots=True)
class _Context:
    """One stream as its client knows it. ``key`` is its name towards the shell, never used twice."""

    name: str
    key: str
    voice_settings: Mapping[str, Any] | None = None
    opened: bool = False  # it has something to say
    pending: bool = False  # text since the last flush
    flushed_with_text: bool = False  # the last flush came with text
    ending: bool = False
    text_chars: int = 0
    spaced: bool = True  # the text so far ends in white space
    held_from_s: float | None = None  # audio the encoder has not given yet begins here
    clock: CharacterClock = field(default_factory=CharacterClock)


class _Sockets(ABC):
    """What both sockets have in common."""

    def __init__(self, settings: SocketSettings, refusal: SpeechError | None = None) -> None:
        """``refusal``: what is wrong with the URL. It is told at the first message: clients that find the socket closed while
        they still open it may wait for ever.
        """
        self._refusal = refusal
        self.session = uuid.uuid4().hex
        self.idle_s = settings.inactivity_s
        self._settings = settings
        self._contexts: dict[str, _Context] = {}  # by name
        self._count = 0
        self._closed = False
        self._heard_first = False

    @property
    def busy(self) -> bool:
        """See ``SocketProtocol``."""
        return any(context.opened for context in self._contexts.values())

    @property
    def waits_for_client(self) -> bool:
        """See ``SocketProtocol``."""
        return not self._closed and not any(context.ending for context in self._contexts.values())

    def feed(self, data: str | bytes) -> Sequence[Action]:
        """See ``SocketProtocol``."""
        if self._closed:
            return ()
        if self._refusal is not None:
            return self._last_words(self._refusal)
        try:
            frame = self._read(data)
            actions: list[Action] = []
            if not self._heard_first and frame.api_key is not None:
                actions.append(Authenticate(frame.api_key))
            self._heard_first = True
            actions.extend(self._message(frame))
        except SpeechError as error:
            return self._last_words(error)
        return actions

    def event(self, event: Piece | SpeechError, key: str) -> Sequence[Action]:
        """See ``SocketProtocol``."""
        context = self._by_key(key)
        if self._closed or context is None:
            return ()
        if isinstance(event, SpeechError):
            return self.fail(event, key)
        actions = self._audio(context, event)
        actions.append(Consumed(key))
        if event.stats is not None:
            actions.extend(self._finish(context, "complete"))
        return actions

    def fail(self, error: SpeechError, key: str | None = None) -> Sequence[Action]:
        """See ``SocketProtocol``."""
        return () if self._closed else self._last_words(error)

    def abandon(self, error: SpeechError) -> Sequence[Action]:
        """See ``SocketProtocol``."""
        return Drop(), *self._last_words(error)

    @abstractmethod
    def _message(self, frame: ClientFrame) -> Sequence[Action]:
        """What a frame of the client comes to."""

    @abstractmethod
    def _frame(self, context: _Context, audio: str | None, alignment: Alignment | None, *, final: bool) -> AudioFrame:
        """A frame for the client."""

    @abstractmethod
    def _finish(self, context: _Context, outcome: str) -> list[Action]:
        """The context has nothing more to say."""

    def _read(self, data: str | bytes) -> ClientFrame:
        if isinstance(data, bytes):
            raise SpeechError(
                ErrorCode.UNSUPPORTED_DATA, f"got a binary frame of {len(data)} bytes; allowed: JSON in text frames"
            )
        limit = self._settings.max_message_bytes
        if len(data) * 4 > limit and (size := len(data.encode())) > limit:
            raise SpeechError(ErrorCode.TOO_BIG, f"message has {size} bytes; allowed: up to {limit}")
        return read_frame(data)

    def _new_context(self, name: str) -> _Context:
        self._count += 1
        context = self._contexts[name] = _Context(name, f"{name}#{self._count}")
        return context

    def _by_key(self, key: str) -> _Context | None:
        return next((context for context in self._contexts.values() if context.key == key), None)

    def _settle(self, context: _Context, wanted: Mapping[str, Any] | None) -> None:
        """Take voice settings: nothing, the same again, or the first before anything was said."""
        if not wanted:
            return
        speed_of(wanted)
        if context.opened and wanted != context.voice_settings:
            raise SpeechError(POLICY, SETTINGS_CHANGED, "voice_settings")
        context.voice_settings = wanted

    def _say(self, context: _Context, text: str) -> list[Action]:
        """Text to speak. White space alone opens nothing, and of several in a row the first is enough."""
        actions: list[Action] = []
        blank = not text.strip()
        if not text or (blank and (not context.opened or context.spaced)):
            return actions
        if not context.opened:
            context.opened = True
            speed, tempo = split_speed(speed_of(context.voice_settings))
            options = replace(self._settings.options, speed=speed)
            actions.append(Open(options, self._settings.format, context.key, tempo))
        context.text_chars += len(text)
        if context.text_chars > self._settings.max_text_chars:
            raise SpeechError(
                ErrorCode.TOO_LONG,
                f"text has {context.text_chars} characters; allowed: {self._settings.max_text_chars}",
                "text",
            )
        context.clock.text(text)
        context.spaced = text[-1].isspace()
        actions.append(Feed(text, context.key))
        if not blank:
            context.pending = True
            if self._settings.auto_mode and text.rstrip(" \"'”’)").endswith(SENTENCE_ENDS):
                actions.append(Flush(context.key))
        return actions

    def _flush(self, context: _Context, *, with_text: bool) -> list[Action]:
        context.pending = False
        context.flushed_with_text = with_text
        return [Flush(context.key)] if context.opened else []

    def _audio(self, context: _Context, piece: Piece) -> list[Action]:
        """The frames of one piece; a frame holds so much that every client reads it."""
        context.clock.words(piece.onsets, piece.words)
        start_s = piece.start_s if context.held_from_s is None else context.held_from_s
        if not piece.audio:
            context.held_from_s = start_s
            return []
        context.held_from_s = None
        parts = math.ceil(len(piece.audio) / MAX_FRAME_BYTES)
        actions: list[Action] = []
        for part in range(parts):
            last = part == parts - 1
            end_s = piece.end_s if last else start_s + (piece.end_s - start_s) / (parts - part)
            span = context.clock.take(start_s, end_s, last=last and piece.stats is not None)
            audio = base64.b64encode(piece.audio[part * MAX_FRAME_BYTES : (part + 1) * MAX_FRAME_BYTES]).decode()
            frame = self._frame(context, audio, Alignment.of(span), final=False)
            actions.append(Send(frame, context.key, end_s - start_s))
            start_s = end_s
        return actions

    def _last_words(self, error: SpeechError) -> Sequence[Action]:
        self._closed = True
        name, code = _named(error)
        frame = ErrorFrame(message=error.message, error=name, code=code, retry_after_ms=error.retry_after_ms)
        outcome = _outcome(error)
        overs = [Over(outcome, context.key) for context in self._contexts.values() if context.opened] or [Over(outcome)]
        cancels = [Cancel(context.key) for context in self._contexts.values() if context.opened]
        self._contexts.clear()
        return Send(frame), *overs, Close(code, name), *cancels


class StreamInput(_Sockets):
    """``stream-input``: one stream; an empty text ends it, and its end ends the socket."""

    def _message(self, frame: ClientFrame) -> Sequence[Action]:
        context = self._contexts.get(DEFAULT_CONTEXT) or self._new_context(DEFAULT_CONTEXT)
        if context.ending:
            return ()
        self._settle(context, frame.voice_settings)
        if frame.cancel:
            return [Drop(context.key), Cancel(context.key), *self._finish(context, "cancelled")]
        actions = self._say(context, frame.text or "")
        if frame.text == "" or frame.close_socket:
            context.ending = True
            actions.extend([End(context.key)] if context.opened else self._finish(context, "complete"))
        elif frame.flush:
            actions.extend(self._flush(context, with_text=bool(frame.text)))
        return actions

    def _frame(self, context: _Context, audio: str | None, alignment: Alignment | None, *, final: bool) -> AudioFrame:
        return AudioFrame(
            audio=audio, isFinal=True if final else None, normalizedAlignment=alignment, alignment=alignment
        )

    def _finish(self, context: _Context, outcome: str) -> list[Action]:
        self._closed = True
        key = context.key if context.opened else ""
        return [Send(self._frame(context, None, None, final=True), key), Over(outcome, key), Close(1000, outcome)]


class MultiStreamInput(_Sockets):
    """``multi-stream-input``: up to five contexts, each with an end of its own; an empty text only says "still here"."""

    _closing = False

    def fail(self, error: SpeechError, key: str | None = None) -> Sequence[Action]:
        """See ``SocketProtocol``. What ends one context leaves the others alone; a wrong key ends them all."""
        context = None if key is None else self._by_key(key)
        if self._closed or context is None or error.code == ErrorCode.UNAUTHORIZED:
            return super().fail(error, key)
        del self._contexts[context.name]
        name, code = _named(error)
        frame = _context_error(context.name, error.message, name, code, error.retry_after_ms)
        return [
            Send(frame, context.key),
            Over(_outcome(error), context.key),
            Cancel(context.key),
            *self._perhaps_close(),
        ]

    def _message(self, frame: ClientFrame) -> Sequence[Action]:
        if frame.close_socket:
            self._closing = True
            return [*self._end_all(), *self._perhaps_close()]
        if self._closing:
            return ()
        name = frame.context or DEFAULT_CONTEXT
        context = self._contexts.get(name)
        if frame.cancel:
            return self._cancel(context) if context else ()
        if frame.close_context:
            return self._close_context(context) if context else ()
        if context is None:
            if not frame.text:
                return ()  # keep-alive or flush of what is not there: opening it here would leak it
            if len(self._contexts) >= MAX_CONTEXTS:
                message = f"Maximum simultaneous contexts per WebSocket connection exceeded ({MAX_CONTEXTS})"
                return [Send(_context_error(name, message, TOO_MANY, 1008))]
            context = self._new_context(name)
        if context.ending:
            if not frame.text:
                return ()
            message = (
                f"context {name[:80]!r} is being closed; allowed: another context_id, or this one after its isFinal"
            )
            return [Send(_context_error(name, message, "context_closing", 1008), context.key)]
        self._settle(context, frame.voice_settings)
        actions = self._say(context, frame.text or "")
        if frame.flush:
            actions.extend(self._flush(context, with_text=bool((frame.text or "").strip())))
        return actions

    def _close_context(self, context: _Context) -> Sequence[Action]:
        """Stop, or finish what was flushed: clients send the same for both, and differ in what they sent before."""
        interrupted = context.pending or (context.flushed_with_text and self._settings.close_cancels)
        if context.ending or interrupted:
            return self._cancel(context)
        return self._end(context)

    def _end(self, context: _Context) -> list[Action]:
        if context.ending:
            return []
        context.ending = True
        return [End(context.key)] if context.opened else self._finish(context, "complete")

    def _end_all(self) -> list[Action]:
        return [action for context in list(self._contexts.values()) for action in self._end(context)]

    def _cancel(self, context: _Context) -> list[Action]:
        return [Drop(context.key), Cancel(context.key), *self._finish(context, "cancelled")]

    def _frame(self, context: _Context, audio: str | None, alignment: Alignment | None, *, final: bool) -> AudioFrame:
        return ContextAudioFrame(
            audio=audio,
            isFinal=True if final else None,
            normalizedAlignment=alignment,
            alignment=alignment,
            contextId=context.name,
        )

    def _finish(self, context: _Context, outcome: str) -> list[Action]:
        del self._contexts[context.name]
        actions: list[Action] = [Send(self._frame(context, None, None, final=True), context.key)]
        if context.opened:
            actions.append(Over(outcome, context.key))
        return [*actions, *self._perhaps_close()]

    def _perhaps_close(self) -> list[Action]:
        if not self._closing or self._contexts or self._closed:
            return []
        self._closed = True
        return [Close(1000, "complete")]


def _named(error: SpeechError) -> tuple[str, int]:
    """The name and close code of an error in this API."""
    is_policy = error.code in (POLICY, ErrorCode.UNKNOWN_VOICE)
    close_code = 1008 if is_policy else CLOSE_CODES.get(error.code, 1011)  # type: ignore[call-overload]
    known = error.code in set(ErrorCode) or error.code == POLICY
    return ERROR_NAMES.get(error.code, str(error.code) if known else "internal"), close_code


def _outcome(error: SpeechError) -> str:
    if error.code in set(ErrorCode):
        return str(error.code)
    return ErrorCode.INVALID_VALUE if error.code == POLICY else ErrorCode.INTERNAL


def _context_error(
    context: str, message: str, name: str, code: int, retry_after_ms: int | None = None
) -> ContextErrorFrame:
    return ContextErrorFrame(message=message, error=name, code=code, retry_after_ms=retry_after_ms, contextId=context)
