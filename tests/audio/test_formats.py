"""Formats: bad values are refused with field, value and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from tts_spec.audio.formats import AudioFormat
from tts_spec.types import SpeechError


@pytest.mark.parametrize(
    ("fields", "field", "parts"),
    [
        ({"codec": "mp4"}, "format", ["'mp4'", "pcm_s16le", "flac"]),
        ({"rate": 11_025}, "sample_rate", ["11025", "8000, 16000, 22050"]),
        ({"codec": "ulaw"}, "sample_rate", ["24000", "allowed: 8000"]),
        ({"codec": "opus", "rate": 44_100}, "sample_rate", ["44100", "24000, 48000"]),
        ({"bitrate": 64_000}, "bitrate", ["64000", "for mp3", "for opus"]),
        ({"codec": "mp3", "bitrate": 1}, "bitrate", ["1;", "8000 to 320000 for mp3"]),
        ({"codec": "opus", "bitrate": 320_000}, "bitrate", ["320000;", "8000 to 256000 for opus"]),
    ],
)
def test_bad_values_are_named(fields: dict[str, Any], field: str, parts: list[str]) -> None:
    with pytest.raises(SpeechError) as caught:
        AudioFormat(**fields)
    assert (caught.value.code, caught.value.field) == ("invalid_value", field)
    for part in parts:
        assert part in caught.value.message
