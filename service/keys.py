"""API keys and what each may use. Keys are kept as hashes only. Knows no socket and no request.

A key is random and long (``new_key``), so one SHA-256 is enough to keep it: there is nothing to guess from the hash.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.messages import ErrorCode
from tts_spec.types import SpeechError

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key. None means no limit."""

    name: str  # for logs
    sha256: str  # of the key, 64 hexadecimal digits
    max_sessions: int | None = None  # sockets and requests at once
    max_chars_per_day: int | None = None  # characters of text in any 24 hours, counted from the first

    def __post_init__(self) -> None:
        if (
            not isinstance(self.sha256, str)
            or len(self.sha256) != 64
            or set(self.sha256.lower()) - set("0123456789abcdef")
        ):
            raise SpeechError(
                "invalid_value",
                f"sha256 of key {self.name!r} is not a hash; allowed: what `tts-spec key` prints",
                "sha256",
            )
        for field in ("max_sessions", "max_chars_per_day"):
            value = getattr(self, field)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise SpeechError(
                    "invalid_value", f"{field} of key {self.name!r} is {value!r}; allowed: a whole number from 0", field
                )

    @classmethod
    def of(cls, name: str, key: str) -> ApiKey:
        """The entry of a key known in the clear, without limits."""
        return cls(name, hash_key(key))


def new_key() -> str:
    """A key nobody can guess: 256 random bits."""
    return "tts_" + secrets.token_urlsafe(32)


def hash_key(key: str) -> str:
    """What is kept of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


class Client:
    """Whoever holds one key (or nobody's key, where none is asked for), with what they use now."""

    def __init__(self, key: ApiKey | None, clock: Callable[[], float]) -> None:
        self.name = key.name if key else "anyone"
        self._key = key
        self._clock = clock
        self._sessions = 0
        self._day = clock()  # when counting began
        self._characters = 0

    def enter(self) -> None:
        """A socket or request begins. Raises ``SpeechError`` ``overloaded`` when the key has too many already."""
        limit = self._key.max_sessions if self._key else None
        if limit is not None and self._sessions >= limit:
            raise SpeechError(
                ErrorCode.OVERLOADED,
                f"{self._sessions} sessions of this API key are being served; allowed: {limit}; try again later",
            )
        self._sessions += 1

    def leave(self) -> None:
        """One that has entered ends."""
        self._sessions -= 1

    def spend(self, characters: int) -> None:
        """Text to be spoken. Raises ``SpeechError`` ``quota_exceeded``, and counts nothing, when it is too much."""
        limit = self._key.max_chars_per_day if self._key else None
        if limit is None:
            return
        now = self._clock()
        if now - self._day >= DAY_S:
            self._day, self._characters = now, 0
        if self._characters + characters > limit:
            rest = limit - self._characters
            raise SpeechError(
                ErrorCode.QUOTA_EXCEEDED,
                f"text has {characters} characters; allowed: {rest} more with this API key today ({limit} a day)",
                "text",
            )
        self._characters += characters


class KeyRing:
    """All keys of a server. Without any, everybody is let in."""

    def __init__(self, keys: Sequence[ApiKey], clock: Callable[[], float] = time.monotonic) -> None:
        self._clients = [(bytes.fromhex(key.sha256), Client(key, clock)) for key in keys]
        self.anyone = Client(None, clock)  # whoever comes by a way that knows no keys

    @property
    def asks(self) -> bool:
        """A key is needed."""
        return bool(self._clients)

    def client(self, key: str | None) -> Client:
        """Who holds this key. Raises ``SpeechError`` ``unauthorized``. Takes as long for a wrong key as for a right one."""
        if not self._clients:
            return self.anyone
        if key:
            shown = bytes.fromhex(hash_key(key))
            # Every hash is compared, none is left early: the time tells nothing about any of them.
            found = [client for digest, client in self._clients if hmac.compare_digest(digest, shown)]
            if found:
                return found[0]
            raise SpeechError(ErrorCode.UNAUTHORIZED, "the API key is not known; allowed: a key of this server")
        raise SpeechError(ErrorCode.UNAUTHORIZED, "there is no API key; allowed: a key of this server")
