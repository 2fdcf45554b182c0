"""The settings of the server, checked when they are made. Knows no socket and no engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from service.keys import ApiKey
from tts_spec.types import SpeechError


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How to serve. Every bad value raises ``SpeechError`` naming the field, the value and what is allowed."""

    host: str = "127.0.0.1"  # loopback: anyone who can connect may use the service
    port: int = 8000  # 0 = any free port
    max_sessions: int = 16  # sockets served at once; one more gets error overloaded and close code 1013
    max_message_bytes: int = 65_536  # of one client message (UTF-8)
    max_text_chars: int = 200_000  # of one utterance stream
    idle_s: float = 60.0  # waiting for the client with nothing left to say or to send
    stall_s: float = 30.0  # one write may wait this long for a slow reader
    linger_s: float = 5.0  # after an error, how long a full socket may delay the error message
    drain_s: float = 10.0  # on SIGTERM or SIGINT: one deadline for all running streams
    allowed_origins: tuple[str, ...] = ()  # web origins besides our own that may open a socket
    api_keys: tuple[ApiKey, ...] = ()  # none: everybody is let in
    voice_aliases: Mapping[str, str] = field(default_factory=dict)  # other name -> voice
    close_context_cancels: bool = (
        False  # ElevenLabs: close_context right after text with flush stops; else it is spoken
    )
    max_body_bytes: int = 1_048_576  # of one HTTP request

    def __post_init__(self) -> None:
        if not isinstance(self.host, str) or not self.host:
            raise SpeechError("invalid_value", f"host is {self.host!r}; allowed: an address or host name", "host")
        _whole("port", self.port, 0, 65_535)
        _whole("max_sessions", self.max_sessions, 1, 100_000)
        _whole("max_message_bytes", self.max_message_bytes, 256, 16_777_216)
        _whole("max_body_bytes", self.max_body_bytes, 256, 1_073_741_824)
        _whole("max_text_chars", self.max_text_chars, 1, 1_000_000_000)
        for name in ("idle_s", "stall_s", "linger_s", "drain_s"):
            _seconds(name, getattr(self, name))


def _whole(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise SpeechError("invalid_value", f"{name} is {value!r}; allowed: a whole number from {low} to {high}", name)


def _seconds(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 86_400:
        raise SpeechError("invalid_value", f"{name} is {value!r}; allowed: seconds, above 0 and up to 86400", name)
