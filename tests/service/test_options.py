"""Server options: bad values are refused with field, value and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from service.options import ServerOptions
from tts_spec.types import SpeechError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("host", ""),
        ("host", 5),
        ("port", -1),
        ("port", 65_536),
        ("port", "80"),
        ("max_sessions", 0),
        ("max_sessions", True),
        ("max_waiting", -1),
        ("max_message_bytes", 1),
        ("max_text_chars", 0),
        ("idle_s", 0),
        ("stall_s", -1.0),
        ("linger_s", float("nan")),
        ("drain_s", float("inf")),
    ],
)
def test_bad_value_is_named(field: str, value: Any) -> None:
    with pytest.raises(SpeechError) as caught:
        ServerOptions(**{field: value})
    assert (caught.value.code, caught.value.field) == ("invalid_value", field)
    assert f"{field} is {value!r}; allowed: " in caught.value.message


def test_the_default_is_reachable_from_this_machine_only() -> None:
    assert ServerOptions().host == "127.0.0.1"
