"""ElevenLabs' names of output formats: codec, rate, and bit rate in kbit/s, e.g. ``mp3_44100_128`` or ``pcm_24000``."""

from __future__ import annotations

import re

from tts_spec.audio.formats import AudioFormat, Codec
from tts_spec.types import SpeechError

DEFAULT = "mp3_44100_128"
_CODECS: dict[str, Codec] = {
    "mp3": "mp3", "pcm": "pcm_s16le", "ulaw": "ulaw", "alaw": "alaw", "opus": "opus", "wav": "wav",
}  # fmt: skip


def output_format(name: str | None) -> AudioFormat:
    """Raises ``SpeechError`` for a name this API does not have."""
    found = re.fullmatch(r"([a-z0-9]+)_(\d{4,5})(?:_(\d{2,3}))?", name or DEFAULT)
    if found and found[1] in _CODECS:
        try:
            return AudioFormat(_CODECS[found[1]], int(found[2]), int(found[3]) * 1000 if found[3] else None)
        except SpeechError:
            pass
    raise SpeechError(
        "invalid_value",
        f"output_format is {(name or '')[:80]!r}; allowed: mp3_RATE_KBITS, opus_48000_KBITS, pcm_RATE, wav_RATE, ulaw_8000, alaw_8000",
        "output_format",
    )
