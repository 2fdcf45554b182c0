"""Wyoming (Home Assistant, Rhasspy) as a state machine: events in, actions out. Does no I/O.

Events travel as JSON text here; ``wyoming_server.py`` puts them on the wire. One stream at a time, as its clients expect;
requests that come meanwhile wait. Speech leaves as PCM at the voice's own rate.
"""

from __future__ import annotations

import json
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Attribution, Describe, Info, TtsProgram, TtsVoice
from wyoming.ping import Ping, Pong
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeStopped

from service.actions import Action, Cancel, Close, Consumed, Drop, End, Feed, Open, Over, Send, SendAudio
from service.messages import ErrorCode
from service.options import ServerOptions
from service.speech import Piece
from service.voices import VoiceBook
from tts_spec.audio.formats import AudioFormat
from tts_spec.types import SpeakOptions, SpeechError

MAX_WAITING = 16  # requests behind the one that is being spoken
ATTRIBUTION = Attribution(name="tts-spec", url="")


class EventMessage(BaseModel):
    """One event without payload."""

    type: str
    data: dict[str, Any]

    @classmethod
    def of(cls, event: Event) -> EventMessage:
        return cls(type=event.type, data=event.data)


@dataclass(slots=True)
class _Request:
    """What is being said. ``streamed``: its text comes in chunks, and its end is told apart from its audio's."""

    key: str
    voice: str
    streamed: bool
    opened: bool = False
    ended: bool = False
    started: bool = False  # audio-start was sent
    text_chars: int = 0


class WyomingProtocol:
    """See ``actions.SocketProtocol``."""

    def __init__(self, voices: VoiceBook, rate: int, options: ServerOptions) -> None:
        """``rate``: of the voices, in Hz."""
        self.session = uuid.uuid4().hex
        self.idle_s = options.idle_s
        self._voices = voices
        self._format = AudioFormat("pcm_s16le", rate)
        self._options = options
        self._now: _Request | None = None
        self._waiting: deque[Synthesize] = deque()
        self._count = 0
        self._closed = False

    @property
    def busy(self) -> bool:
        """See ``SocketProtocol``."""
        return self._now is not None

    @property
    def waits_for_client(self) -> bool:
        """See ``SocketProtocol``."""
        return not self._closed and (self._now is None or not self._now.ended)

    def feed(self, data: str | bytes) -> Sequence[Action]:
        """An event as JSON text: ``{"type": ..., "data": {...}}``."""
        if self._closed:
            return ()
        try:
            raw = json.loads(data)
            if not isinstance(raw["type"], str):
                raise TypeError
            return self._take(Event(type=raw["type"], data=raw["data"]))
        except SpeechError as error:
            return self._last_words(error)
        except (KeyError, TypeError, ValueError, AttributeError):
            return self._last_words(
                SpeechError(
                    ErrorCode.INVALID_VALUE, "the event lacks something, or has it in another type; see Wyoming"
                )
            )

    def event(self, event: Piece | SpeechError, key: str) -> Sequence[Action]:
        """See ``SocketProtocol``."""
        request = self._now
        if self._closed or request is None or request.key != key:
            return ()
        if isinstance(event, SpeechError):
            return self._last_words(event)
        actions: list[Action] = []
        if event.audio:
            actions.extend(self._start(request))
            actions.append(SendAudio(event.audio, event.seconds, key))
        actions.append(Consumed(key))
        if event.stats is not None:
            actions.extend(self._finish(request))
        return actions

    def fail(self, error: SpeechError, key: str | None = None) -> Sequence[Action]:
        """See ``SocketProtocol``."""
        return () if self._closed else self._last_words(error)

    def abandon(self, error: SpeechError) -> Sequence[Action]:
        """See ``SocketProtocol``."""
        return Drop(), *self._last_words(error)

    def _take(self, event: Event) -> list[Action]:
        request = self._now
        if Describe.is_type(event.type):
            return [Send(EventMessage.of(self._info().event()))]
        if Ping.is_type(event.type):
            return [Send(EventMessage.of(Pong(text=event.data.get("text")).event()))]
        if Synthesize.is_type(event.type):
            if request is not None and request.streamed and not request.ended:
                return []  # the whole text again, for servers that cannot stream
            return self._ask(Synthesize.from_event(event))
        if SynthesizeStart.is_type(event.type):
            if request is not None:
                raise SpeechError(
                    ErrorCode.UNEXPECTED_MESSAGE, "synthesize-start is not allowed while speaking", "type"
                )
            self._begin(_voice_of(event.data), streamed=True)
        elif SynthesizeChunk.is_type(event.type):
            return self._say(self._streamed(), SynthesizeChunk.from_event(event).text)
        elif SynthesizeStop.is_type(event.type):
            return self._end(self._streamed())
        return []  # others are for other kinds of servers

    def _streamed(self) -> _Request:
        if self._now is None or not self._now.streamed or self._now.ended:
            raise SpeechError(ErrorCode.UNEXPECTED_MESSAGE, "there was no synthesize-start; allowed: after one", "type")
        return self._now

    def _ask(self, asked: Synthesize) -> list[Action]:
        if not isinstance(asked.text, str):
            raise SpeechError(ErrorCode.INVALID_VALUE, f"text is {repr(asked.text)[:80]}; allowed: a string", "text")
        if self._now is not None:
            if len(self._waiting) == MAX_WAITING:
                raise SpeechError(ErrorCode.OVERLOADED, f"{MAX_WAITING} requests are waiting; allowed: {MAX_WAITING}")
            self._waiting.append(asked)
            return []
        voice = asked.voice
        request = self._begin({"name": voice.name, "language": voice.language} if voice else {}, streamed=False)
        return [*self._say(request, asked.text), *self._end(request)]

    def _begin(self, voice: Mapping[str, Any], *, streamed: bool) -> _Request:
        self._count += 1
        self._now = _Request(f"wyoming#{self._count}", self._find(voice), streamed)
        return self._now

    def _find(self, voice: Mapping[str, Any]) -> str:
        name, language = voice.get("name"), voice.get("language")
        if name is not None:
            return self._voices.find(name)
        for each in self._voices.voices:
            if language and each.language.lower().replace("_", "-").startswith(str(language).lower().replace("_", "-")):
                return each.name
        return self._voices.default

    def _say(self, request: _Request, text: str) -> list[Action]:
        if not isinstance(text, str):
            raise SpeechError(ErrorCode.INVALID_VALUE, f"text is {repr(text)[:80]}; allowed: a string", "text")
        if not text or (not request.opened and not text.strip()):
            return []
        request.text_chars += len(text)
        limit = self._options.max_text_chars
        if request.text_chars > limit:
            raise SpeechError(ErrorCode.TOO_LONG, f"text has {request.text_chars} characters; allowed: {limit}", "text")
        actions: list[Action] = []
        if not request.opened:
            request.opened = True
            actions.append(Open(SpeakOptions(voice=request.voice), self._format, request.key))
        return [*actions, Feed(text, request.key)]

    def _end(self, request: _Request) -> list[Action]:
        request.ended = True
        return [End(request.key)] if request.opened else self._finish(request)

    def _start(self, request: _Request) -> list[Action]:
        if request.started:
            return []
        request.started = True
        data = {"rate": self._format.rate, "width": 2, "channels": 1, "timestamp": 0}
        return [Send(EventMessage(type="audio-start", data=data), request.key)]

    def _finish(self, request: _Request) -> list[Action]:
        """Tell the end, then begin with the next."""
        actions = self._start(request)
        actions.append(Send(EventMessage(type="audio-stop", data={}), request.key))
        if request.streamed:
            actions.append(Send(EventMessage.of(SynthesizeStopped().event()), request.key))
        if request.opened:
            actions.append(Over("complete", request.key))
        self._now = None
        return [*actions, *(self._ask(self._waiting.popleft()) if self._waiting else [])]

    def _last_words(self, error: SpeechError) -> Sequence[Action]:
        self._closed = True
        request = self._now
        self._now = None
        code = error.code if error.code in set(ErrorCode) else ErrorCode.INTERNAL
        frame = EventMessage.of(Error(text=error.message, code=str(code)).event())
        if request is None or not request.opened:
            return Send(frame), Over(str(code)), Close(1011, str(code))
        # The sound that was begun is over: a client that waits for its end must not wait for ever.
        stop = [Send(EventMessage(type="audio-stop", data={}), request.key)] if request.started else []
        return *stop, Send(frame), Over(str(code), request.key), Close(1011, str(code)), Cancel(request.key)

    def _info(self) -> Info:
        voices = [
            TtsVoice(
                name=voice.name,
                attribution=ATTRIBUTION,
                installed=True,
                description=voice.description or voice.name,
                version=None,
                languages=[voice.language],
            )
            for voice in self._voices.voices
        ]
        program = TtsProgram(
            name="tts-spec",
            attribution=ATTRIBUTION,
            installed=True,
            description="Streaming speech synthesis with exact speculative decoding",
            version=None,
            voices=voices,
            supports_synthesize_streaming=True,
        )
        return Info(tts=[program])


def _voice_of(data: Mapping[str, Any]) -> Mapping[str, Any]:
    voice = data.get("voice")
    return voice if isinstance(voice, dict) else {}
