"""What a protocol may ask its shell to do, and what every protocol has in common. Pure values: nothing here acts.

A socket may carry several streams at once; ``key`` says which is meant. Protocols with one stream leave it at "".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel

from service.speech import Piece
from tts_spec.audio.formats import AudioFormat
from tts_spec.types import SpeakOptions, SpeechError


@dataclass(frozen=True, slots=True)
class Authenticate:
    """The client showed an API key in a message; a refusal goes to ``fail``."""

    api_key: str


@dataclass(frozen=True, slots=True)
class Open:
    """Begin a stream; a refusal goes to ``fail``."""

    options: SpeakOptions
    format: AudioFormat
    key: str = ""
    tempo: float = 1.0  # beyond the voice's own speeds


@dataclass(frozen=True, slots=True)
class Feed:
    """Give the stream text."""

    text: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Flush:
    """Have it speak what it has."""

    key: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """No more text comes."""

    key: str = ""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop it now; nothing of it is heard after this. Harmless where there is none."""

    key: str = ""


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget what waits to be sent: of one stream, or all there is."""

    key: str | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Send a text frame: the message as JSON. ``seconds``: of audio in it."""

    message: BaseModel
    key: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SendAudio:
    """Send a binary frame of so many seconds of audio."""

    data: bytes
    seconds: float
    key: str = ""


@dataclass(frozen=True, slots=True)
class Consumed:
    """All frames of one piece lie before this: once they are written, tell the engine."""

    key: str = ""


@dataclass(frozen=True, slots=True)
class Over:
    """The stream has ended so (``metrics.OUTCOMES``); its last frame lies before this."""

    outcome: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Close:
    """Close the socket; nothing follows."""

    code: int
    reason: str


SocketAction = Send | SendAudio | Consumed | Over | Close
Action = Authenticate | Open | Feed | Flush | End | Cancel | Drop | SocketAction


class SocketProtocol(Protocol):
    """The state machine of one socket. Methods return actions, to be carried out in order; none does I/O.

    After a ``Close`` has been returned nothing has any effect but ``abandon``.
    """

    session: str  # the socket's name, for logs
    idle_s: float  # how long the client may say nothing while it is its turn

    @property
    def waits_for_client(self) -> bool:
        """The client owes the next step."""

    @property
    def busy(self) -> bool:
        """Something was started that is not over."""

    def feed(self, data: str | bytes) -> Sequence[Action]:
        """A frame from the client: text (str) or binary (bytes)."""

    def event(self, event: Piece | SpeechError, key: str) -> Sequence[Action]:
        """Something the stream ``key`` reported."""

    def fail(self, error: SpeechError, key: str | None = None) -> Sequence[Action]:
        """A stream (None: the socket) cannot go on, whoever found out."""

    def abandon(self, error: SpeechError) -> Sequence[Action]:
        """What was to be sent cannot be: forget it, even a ``Close`` that is still waiting, and say why."""
