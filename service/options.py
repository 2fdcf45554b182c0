"""The settings of the server, checked when they are made. Knows no socket and no engine."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

from service.keys import ApiKey
from tts_spec.types import SpeechError


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How to serve. Every bad value raises ``SpeechError`` naming the field, the value and what is allowed."""

    host: str = "127.0.0.1"  # address to listen on; another than loopback needs api_keys or allow_anyone
    port: int = 8000  # of HTTP and WebSocket; 0 = any free port
    wyoming_port: int | None = None  # of Wyoming (Home Assistant), which knows no keys; None = off, 0 = any free port
    allow_anyone: bool = False  # serve other machines although no key is asked for
    api_keys: tuple[ApiKey, ...] = ()  # none: everybody is let in
    allowed_origins: tuple[
        str, ...
    ] = ()  # web origins besides our own whose pages may use the server, e.g. https://a.example
    tls_certificate: str | None = None  # PEM file; with it the server speaks https and wss
    tls_key: str | None = None  # PEM file, where it is not in the certificate's
    voice_aliases: Mapping[str, str] = field(default_factory=dict)  # other name -> voice
    close_context_cancels: bool = (
        False  # ElevenLabs: close_context after text with flush stops; else what was flushed is spoken
    )
    max_sessions: int = 16  # sockets and requests served at once
    max_waiting: int = 16  # beside those: they wait in the engine's queue until there is room, or are told overloaded
    max_message_bytes: int = 65_536  # of one message of a socket (UTF-8)
    max_body_bytes: int = 1_048_576  # of one HTTP request
    max_text_chars: int = 200_000  # of one stream over a socket
    idle_s: float = 60.0  # waiting for the client with nothing left to say or to send
    stall_s: float = 30.0  # one write may wait this long for a slow reader
    linger_s: float = 5.0  # after an error, how long a full socket may delay the error message
    drain_s: float = 10.0  # on SIGTERM or SIGINT: one deadline for all running streams

    def __post_init__(self) -> None:
        if not isinstance(self.host, str) or not self.host:
            raise SpeechError("invalid_value", f"host is {self.host!r}; allowed: an address or host name", "host")
        _whole("port", self.port, 0, 65_535)
        if self.wyoming_port is not None:
            _whole("wyoming_port", self.wyoming_port, 0, 65_535)
        _whole("max_sessions", self.max_sessions, 1, 100_000)
        _whole("max_waiting", self.max_waiting, 0, 100_000)
        _whole("max_message_bytes", self.max_message_bytes, 256, 16_777_216)
        _whole("max_body_bytes", self.max_body_bytes, 256, 1_073_741_824)
        _whole("max_text_chars", self.max_text_chars, 1, 1_000_000_000)
        for name in ("idle_s", "stall_s", "linger_s", "drain_s"):
            _seconds(name, getattr(self, name))
        self._check_who_may_come()
        if self.tls_key is not None and self.tls_certificate is None:
            raise SpeechError("invalid_value", "tls_key is given without tls_certificate; allowed: both", "tls_key")
        for origin in self.allowed_origins:
            if not isinstance(origin, str) or not origin.startswith(("http://", "https://")) or origin.endswith("/"):
                raise SpeechError(
                    "invalid_value",
                    f"allowed_origins has {origin!r}; allowed: scheme and host, e.g. https://a.example",
                    "allowed_origins",
                )

    @property
    def is_local(self) -> bool:
        """Only this machine can reach the server."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False  # a name: it may lead anywhere

    def _check_who_may_come(self) -> None:
        if self.is_local or self.allow_anyone:
            return
        if not self.api_keys:
            raise SpeechError(
                "invalid_value",
                f"host is {self.host!r}, which other machines can reach, and no API key is asked for; allowed: 127.0.0.1, keys, "
                "or allow_anyone",
                "host",
            )
        if self.wyoming_port is not None:
            raise SpeechError(
                "invalid_value",
                f"wyoming_port is {self.wyoming_port} on {self.host!r}, and Wyoming knows no API keys; allowed: 127.0.0.1, or allow_anyone",
                "wyoming_port",
            )


def _whole(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise SpeechError("invalid_value", f"{name} is {value!r}; allowed: a whole number from {low} to {high}", name)


def _seconds(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 86_400:
        raise SpeechError("invalid_value", f"{name} is {value!r}; allowed: seconds, above 0 and up to 86400", name)
