"""Where a request may carry its API key. Knows no key."""

from __future__ import annotations

from collections.abc import Mapping

HEADERS = ("xi-api-key", "x-api-key", "api-key")
# Browsers cannot set headers of a WebSocket.
QUERY = ("xi-api-key", "xi_api_key", "api_key", "key", "access_token", "token", "authorization", "single_use_token")


def shown_key(headers: Mapping[str, str], query: Mapping[str, str]) -> str | None:
    """The key a request shows: ``Authorization`` (Bearer or Token), a key header, or the query."""
    if authorization := headers.get("authorization"):
        return bare(authorization)
    for name in HEADERS:
        if key := headers.get(name):
            return key
    for name in QUERY:
        if key := query.get(name):
            return bare(key)
    return None


def bare(authorization: str) -> str:
    """The key in the value of an Authorization header: ``Bearer KEY``, ``Token KEY`` or ``KEY``."""
    scheme, _, key = authorization.strip().partition(" ")
    return key.strip() if key and scheme.lower() in ("bearer", "token") else authorization.strip()
