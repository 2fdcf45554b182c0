"""What all streams of one server share: engine, settings, keys, counters, the threads that encode. Starts no stream."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from service.keys import KeyRing
from service.metrics import Metrics
from service.options import ServerOptions
from service.speech import Piece, Speech
from service.voices import VoiceBook
from tts_spec.audio.formats import AudioFormat
from tts_spec.engine.port import Engine
from tts_spec.types import SpeakOptions, SpeechError

ENCODER_THREADS = 2


class Studio:
    """See the module. Used on the event loop only."""

    def __init__(self, engine: Engine, options: ServerOptions, metrics: Metrics) -> None:
        self.engine = engine
        self.options = options
        self.metrics = metrics
        self.keys = KeyRing(options.api_keys)
        self.voices = VoiceBook(engine.info.voices, options.voice_aliases)
        self._encoders = ThreadPoolExecutor(ENCODER_THREADS, "encoder")  # starts its threads when they are needed

    def speak(
        self,
        options: SpeakOptions,
        audio_format: AudioFormat,
        listener: Callable[[Piece | SpeechError], None],
        tempo: float = 1.0,
    ) -> Speech:
        """Begin a stream. Raises ``SpeechError`` as ``Engine.open`` does."""
        return Speech(
            self.engine, options, audio_format, self._encoders, listener, tempo, self.metrics.overhead_s.observe
        )

    def close(self) -> None:
        """No stream follows."""
        self._encoders.shutdown(wait=False, cancel_futures=True)
