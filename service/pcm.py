"""Float samples to the bytes that go over the wire. Knows no message and no socket."""

from __future__ import annotations

import numpy as np

from service.messages import AudioFormat
from tts_spec.types import Pcm


def encode(pcm: Pcm, audio_format: AudioFormat) -> bytes:
    """Whole little-endian samples of ``pcm`` ([N], -1..1).

    16 bit: clip, then round; the other order, or none, turns a full-scale +1.0 into -32768.
    """
    if audio_format == "pcm_f32le":
        return bytes(pcm.astype("<f4").data)
    return bytes(np.rint(np.clip(pcm * 32767.0, -32768.0, 32767.0)).astype("<i2").data)
