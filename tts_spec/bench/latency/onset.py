"""Where audible speech begins in a stream of samples. Knows samples, no clock.

The definition is that of nari's tts_bench, so that figures compare: the first of two consecutive windows of 20 ms, 10 ms apart, whose RMS,
each window's own mean removed, is at least -45 dBFS.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

WINDOW_S = 0.02
HOP_S = 0.01
THRESHOLD = 10 ** (-45.0 / 20)
CONSECUTIVE = 2

Samples = npt.NDArray[np.int16]


class OnsetDetector:
    """Finds the onset as samples arrive, however they are cut. Forgets what it has passed."""

    def __init__(self, sample_rate: int) -> None:
        self._window = max(1, round(WINDOW_S * sample_rate))
        self._hop = max(1, round(HOP_S * sample_rate))
        self._waiting: Samples = np.zeros(0, np.int16)  # from the next window's first sample on
        self._start = 0  # of the next window
        self._active = 0  # active windows in a row just before it
        self.onset: int | None = None  # the sample at which audible speech begins, once it is known

    def feed(self, samples: Samples) -> None:
        """Take int16 [N] samples that follow those of the last call."""
        if self.onset is not None:
            return
        waiting = np.concatenate([self._waiting, samples])
        passed = 0
        while self.onset is None and passed + self._window <= len(waiting):
            window = waiting[passed : passed + self._window].astype(np.float32) / 32768
            active = float(np.sqrt(np.mean(np.square(window - window.mean())))) >= THRESHOLD
            self._active = self._active + 1 if active else 0
            if self._active == CONSECUTIVE:
                self.onset = self._start - (CONSECUTIVE - 1) * self._hop
            self._start += self._hop
            passed += self._hop
        self._waiting = waiting[passed:]
