"""Voices that speak a sentence at a time, driven in this process: what a plain queue in front of a fast model gives.

One worker thread, as one model has; whoever is speaking hands in one sentence after another, so listeners take turns by the
sentence. Needs the ``train`` extra for Kokoro.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from tts_spec.audio.encoder import to_int16
from tts_spec.bench.latency.playback import SECOND
from tts_spec.bench.latency.target import Clock, sleep_until
from tts_spec.bench.latency.utterance import Leave, Outcome, Utterance
from tts_spec.types import Pcm, SpeechError

SAMPLE_RATE = 24_000
VOICES = {"kokoro": "af_heart", "hibari": "heart"}
Speaker = Callable[[str], Pcm]  # one sentence -> float32 [N] at 24 kHz


class BaselineTarget:
    """See ``Target``. Who leaves is rid of the sentence being spoken only when it is done."""

    leaves: tuple[Leave, ...] = (Leave.CANCEL,)

    def __init__(self, speaker: Speaker, clock: Clock = time.perf_counter_ns) -> None:
        self._speaker = speaker
        self._clock = clock
        self._worker = ThreadPoolExecutor(1, "baseline")

    async def close(self) -> None:
        """See ``Target.close``."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    async def speak(self, utterance: Utterance) -> None:
        """See ``Target.speak``. A sentence can be spoken when its last word has arrived."""
        request = utterance.request
        utterance.sample_rate = SAMPLE_RATE
        utterance.sent_ns = began = self._clock()
        leave_ns: int | None = None
        loop = asyncio.get_running_loop()
        words = 0
        try:
            for sentence in split_sentences(request.text):
                words += len(sentence.split())
                if request.words_per_s is not None:
                    await sleep_until(began + round((words - 1) / request.words_per_s * SECOND), self._clock)
                pcm = await loop.run_in_executor(self._worker, self._speaker, sentence)
                now = self._clock()
                if leave_ns is not None and now >= leave_ns:
                    utterance.left_ns, utterance.free_ns, utterance.outcome = leave_ns, now, Outcome.LEFT
                    return
                utterance.hear(now, to_int16(pcm).tobytes())
                if leave_ns is None and request.leave is not None:
                    leave_ns = now + round(request.leave_after_s * SECOND)
        except Exception as error:  # whatever the model raises is this utterance's outcome
            utterance.fail(f"{type(error).__name__}: {error}")
        else:
            utterance.ended_ns, utterance.outcome = self._clock(), Outcome.COMPLETE


def split_sentences(text: str) -> list[str]:
    """As hibari-tts does."""
    from hibari import Hibari

    sentences: list[str] = Hibari.split_sentences(text)
    return sentences


def speaker(name: str, voice: str | None = None) -> Speaker:
    """The model of a baseline, ready and warm. Raises SpeechError for another name, ImportError without the ``train`` extra."""
    if name not in VOICES:
        raise SpeechError("invalid_value", f"baseline is {name!r}; allowed: {', '.join(VOICES)}", "baseline")
    speak = _hibari(voice or VOICES[name]) if name == "hibari" else _kokoro(voice or VOICES[name])
    speak("Ready.")
    return speak


def _hibari(voice: str) -> Speaker:
    from hibari import Hibari

    model: Any = Hibari(voice)
    return lambda sentence: model(sentence, seed=0)


def _kokoro(voice: str) -> Speaker:
    from models.training.teacher import Teacher, phonemise

    teacher = Teacher.load()

    def speak(sentence: str) -> Pcm:
        phonemes = phonemise(sentence, voice)
        return teacher.speak(phonemes, voice).pcm if phonemes else np.zeros(0, np.float32)

    return speak
