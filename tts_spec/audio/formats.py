"""The formats audio can leave in: codec, rate, bit rate, and what HTTP calls them. Encodes nothing (``encoder.py``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tts_spec.types import SpeechError

Codec = Literal["pcm_s16le", "pcm_f32le", "ulaw", "alaw", "wav", "mp3", "opus", "aac", "flac"]

RATES = (8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
_RATES: dict[Codec, tuple[int, ...]] = {
    "ulaw": (8_000,),  # G.711
    "alaw": (8_000,),
    "opus": (8_000, 16_000, 24_000, 48_000),  # RFC 6716: what the encoder is fed; players always get 48 kHz
}
_MEDIA_TYPES: dict[Codec, str] = {
    "pcm_s16le": "audio/pcm",
    "pcm_f32le": "audio/pcm",
    "ulaw": "audio/basic",
    "alaw": "audio/x-alaw-basic",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
}
# Bits a second: for speech of one channel, where the caller names none; and the most there is.
_BITRATES: dict[Codec, int] = {"mp3": 64_000, "opus": 48_000, "aac": 64_000}
_MOST_BITS: dict[Codec, int] = {"mp3": 320_000, "opus": 256_000, "aac": 320_000}
SAMPLE_BYTES: dict[Codec, int] = {"pcm_s16le": 2, "pcm_f32le": 4, "ulaw": 1, "alaw": 1, "wav": 2}


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """One channel of audio as bytes. A bad value raises ``SpeechError`` naming the field and what is allowed."""

    codec: Codec = "pcm_s16le"
    rate: int = 24_000  # Hz
    bitrate: int | None = None  # bits a second; None = a good one for speech; only mp3, opus and aac have one

    def __post_init__(self) -> None:
        if self.codec not in get_args(Codec):
            raise _bad("format", self.codec, ", ".join(get_args(Codec)))
        if self.rate not in self.rates:
            raise _bad("sample_rate", self.rate, ", ".join(map(str, self.rates)))
        if self.bitrate is not None and not 8_000 <= self.bitrate <= _MOST_BITS.get(self.codec, 0):
            raise _bad(
                "bitrate", self.bitrate, ", ".join(f"8000 to {most} for {codec}" for codec, most in _MOST_BITS.items())
            )

    @property
    def rates(self) -> tuple[int, ...]:
        """The rates this codec has here."""
        return _RATES.get(self.codec, RATES)

    @property
    def media_type(self) -> str:
        """For Content-Type."""
        return _MEDIA_TYPES[self.codec]

    @property
    def bits_per_second(self) -> int:
        """What a compressing codec is told to use. Raises ``KeyError`` for the others."""
        return self.bitrate if self.bitrate is not None else _BITRATES[self.codec]

    @property
    def is_compressed(self) -> bool:
        """Bytes are no plain samples: they come in codec frames, some calls give none."""
        return self.codec not in SAMPLE_BYTES


def _bad(field: str, value: object, allowed: str) -> SpeechError:
    return SpeechError("invalid_value", f"{field} is {value!r}; allowed: {allowed}", field)
