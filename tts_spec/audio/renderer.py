"""Committed frames to PCM: the codec's stateful decoder of one stream, and the silences the caller asked for.

Knows codes and samples; only whole committed frames ever reach it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic

import numpy as np

from models.codec.codec import FrameDecoder, State
from tts_spec.types import Pcm

FADE_S = 0.010  # at both sides of an inserted silence


class Renderer(Generic[State]):
    """Audio of one stream."""

    def __init__(self, codec: FrameDecoder[State], silence: State) -> None:
        """``silence``: state of a stream that has been silent; it stays as it is."""
        self._codec = codec
        self._state = silence.snapshot()
        self._fade = np.linspace(0.0, 1.0, round(FADE_S * codec.sample_rate), dtype=np.float32)
        self._rising = False  # the next samples follow a silence

    def frames(self, frames: Sequence[Sequence[int]], *, before_silence: bool = False) -> Pcm:
        """Decode ``frames`` (K codes each, at least one frame) -> float32 [frame_samples F], within [-1, 1]."""
        (pcm,) = self._codec.decode_streams([np.array(frames).T], [self._state])
        np.clip(pcm, -1.0, 1.0, out=pcm)
        if self._rising:
            pcm[: len(self._fade)] *= self._fade
            self._rising = False
        if before_silence:
            pcm[-len(self._fade) :] *= self._fade[::-1]
        return pcm

    def silence(self, seconds: float) -> Pcm:
        """``seconds`` of zeros; the audio after it fades in."""
        self._rising = True
        return np.zeros(round(seconds * self._codec.sample_rate), np.float32)
