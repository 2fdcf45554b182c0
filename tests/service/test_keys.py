"""API keys: who is let in, where a key may stand, and what one key may use."""

from __future__ import annotations

from typing import Any

import pytest

from service.credentials import shown_key
from service.keys import DAY_S, ApiKey, KeyRing, hash_key, new_key
from tests.service.client import connect, hear, send, speak, stream_url
from tests.service.fake_engine import FakeEngine
from tts_spec.types import SpeechError

pytestmark = pytest.mark.anyio
KEY = "tts_secret"


def code_of(action: Any, *arguments: Any) -> str:
    with pytest.raises(SpeechError) as caught:
        action(*arguments)
    return caught.value.code


def test_without_keys_everybody_is_let_in() -> None:
    ring = KeyRing([])
    assert ring.client(None) is ring.client("whatever")
    ring.client(None).enter()
    ring.client(None).spend(10**9)


def test_with_keys_only_their_holders_are() -> None:
    ring = KeyRing([ApiKey.of("a", KEY), ApiKey.of("b", "other")])
    assert ring.client(KEY).name == "a"
    assert ring.client("other").name == "b"
    for wrong in (None, "", "x", KEY + " ", KEY[:-1], hash_key(KEY)):
        assert code_of(ring.client, wrong) == "unauthorized"


def test_the_key_itself_is_not_kept() -> None:
    assert KEY not in repr(ApiKey.of("a", KEY))
    assert len({new_key() for _ in range(100)}) == 100
    assert len(new_key()) > 40


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"sha256": "secret"}, "sha256"),
        ({"sha256": hash_key("x"), "max_sessions": -1}, "max_sessions"),
        ({"sha256": hash_key("x"), "max_chars_per_day": "many"}, "max_chars_per_day"),
    ],
)
def test_bad_entries_are_named(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(SpeechError) as caught:
        ApiKey("phone", **fields)
    assert caught.value.field == field
    assert "phone" in caught.value.message


def test_a_key_has_its_own_number_of_sessions() -> None:
    ring = KeyRing([ApiKey("a", hash_key("a"), max_sessions=2), ApiKey.of("b", "b")])
    client = ring.client("a")
    client.enter()
    client.enter()
    assert code_of(client.enter) == "overloaded"
    ring.client("b").enter()
    client.leave()
    client.enter()


def test_a_key_has_its_own_number_of_characters_a_day() -> None:
    now = 0.0
    ring = KeyRing([ApiKey("a", hash_key("a"), max_chars_per_day=100)], lambda: now)
    client = ring.client("a")
    client.spend(60)
    assert code_of(client.spend, 41) == "quota_exceeded"
    client.spend(40)  # what was refused was not counted
    assert code_of(client.spend, 1) == "quota_exceeded"
    now = DAY_S
    client.spend(100)


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({"authorization": f"Bearer {KEY}"}, {}),
        ({"authorization": f"Token {KEY}"}, {}),
        ({"authorization": KEY}, {}),
        ({"xi-api-key": KEY}, {}),
        ({"x-api-key": KEY}, {}),
        ({}, {"api_key": KEY}),
        ({}, {"authorization": f"bearer {KEY}"}),
        ({"xi-api-key": KEY}, {"api_key": "another"}),
    ],
)
def test_where_a_key_may_stand(headers: dict[str, str], query: dict[str, str]) -> None:
    assert shown_key(headers, query) == KEY


def test_no_key() -> None:
    assert shown_key({"user-agent": KEY}, {"text": KEY}) is None


async def test_the_native_protocol_asks_for_the_key(fake: FakeEngine) -> None:
    keys = (ApiKey("a", hash_key(KEY), max_sessions=1, max_chars_per_day=10),)
    async with stream_url(fake, api_keys=keys) as url:
        for bad in (url, f"{url}?api_key=wrong"):
            heard = await speak(bad, "Hello")
            assert (heard.one("error")["code"], heard.close_code) == ("unauthorized", 1008)
        assert (await speak(f"{url}?api_key={KEY}", "Hello")).one("end")["reason"] == "complete"
        async with connect(url, additional_headers={"Authorization": f"Bearer {KEY}"}) as socket:
            await send(socket, {"type": "start"})
            await hear(socket, until="started")
            refused = await speak(f"{url}?api_key={KEY}", "Hello")
            assert (refused.one("error")["code"], refused.close_code) == ("overloaded", 1013)
            await send(socket, {"type": "text", "text": "too much"})
            heard = await hear(socket)
            assert (heard.one("error")["code"], heard.close_code) == ("quota_exceeded", 1008)
        assert fake.active == 0
        assert (await speak(f"{url}?api_key={KEY}", "Hi")).close_code == 1000
    assert len(fake.sessions) == 3
