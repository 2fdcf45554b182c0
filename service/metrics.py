"""What the server measures about itself, in Prometheus' text format. Knows engine and sockets by their numbers only.

One registry for each server, so that several may live in a process. Names, types and meanings: ``protocol.md``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from service.messages import ErrorCode
from tts_spec.engine.port import Engine

# Seconds. Fine where the targets are: loop lag 5 and 20 ms, first audio 80, 150 and 250 ms.
LAG_BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0)
FIRST_AUDIO_BUCKETS = (0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.6, 1.0, 2.0, 5.0)
GAP_BUCKETS = (0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)

LEFT = "left"
OUTCOMES = ("complete", "cancelled", LEFT, *ErrorCode)

ENGINE_HELP = {
    "sessions_active": "Sessions that hold resources of the engine.",
    "sessions_queued": "Sessions that wait to be admitted.",
    "sessions_parked": "Sessions without text that gave their slot back.",
    "sessions_refused_total": "Sessions the engine told overloaded.",
    "load": "Share of the engine's time that the live sessions need, as expected from what rounds cost.",
    "kv_cache_bytes": "Memory of all KV slots, taken or not.",
    "resident_memory_bytes": "RSS of the engine's own process, if it has one.",
    "restarts_total": "How often the engine's process had to be started again.",
    "rounds_total": "Speculative rounds: passes of the target.",
    "tokens_total": "Tokens committed.",
    "drafted_total": "Tokens drafted.",
    "accepted_total": "Drafted tokens that were accepted.",
    "capped_total": "Phonemes that were ended because they had lasted as long as they may.",
    "batch_size": "Sessions in the last round.",
    "tau": "Tokens emitted in a pass of the target, lately.",
    "acceptance": "Share of drafted tokens that were accepted, lately.",
    "gamma": "Tokens drafted for a session in the last round.",
    "slack_min_seconds": "Least audio ahead of playback over all live sessions.",
    "tokens_per_second": "Tokens committed in a second, lately.",
}


class Metrics:
    """Counters, gauges and histograms of one server. Used on the event loop only."""

    def __init__(self, engine: Engine, active: Callable[[], int]) -> None:
        """``active`` tells how many streams are being served."""
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)  # process_resident_memory_bytes, process_cpu_seconds_total, ...
        registry.register(_EngineCollector(engine))
        Gauge("tts_sessions_active", "Sockets being served.", registry=registry).set_function(active)
        self.ended = Counter("tts_sessions_total", "Sockets that were served.", ["outcome"], registry=registry)
        for outcome in OUTCOMES:
            self.ended.labels(outcome)  # zero from the start: a rate needs two points
        self.refused = Counter("tts_sessions_refused_total", "Sockets told overloaded.", registry=registry)
        self.characters = Counter("tts_characters_total", "Characters of text received.", registry=registry)
        self.audio_s = Counter("tts_audio_seconds_total", "Audio written to sockets.", registry=registry)
        self.first_audio_s = Histogram(
            "tts_first_audio_seconds",
            "From the first text of a stream to its first audio written to the socket.",
            buckets=FIRST_AUDIO_BUCKETS,
            registry=registry,
        )
        self.gap_s = Histogram(
            "tts_chunk_gap_seconds",
            "From one piece of audio of a stream written to the next.",
            buckets=GAP_BUCKETS,
            registry=registry,
        )
        self.overhead_s = Histogram(
            "tts_chunk_overhead_seconds",
            "From a chunk made by the engine to all of it written.",
            buckets=LAG_BUCKETS,
            registry=registry,
        )
        self.loop_lag_s = Histogram(
            "tts_event_loop_lag_seconds",
            "How late a timer of 20 ms fires.",
            buckets=LAG_BUCKETS,
            registry=registry,
        )

    def exposition(self) -> bytes:
        """Everything now, in Prometheus' text format."""
        return generate_latest(self.registry)


class StreamMeter:
    """Follows one socket. ``clock`` gives seconds."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.perf_counter) -> None:
        self._metrics = metrics
        self._clock = clock
        self._first_text: float | None = None
        self._last_audio: float | None = None
        self._outcome = LEFT

    def text(self, characters: int) -> None:
        """A piece of text came in."""
        if self._first_text is None:
            self._first_text = self._clock()
        self._metrics.characters.inc(characters)

    def audio(self, seconds: float) -> None:
        """A piece of audio was written."""
        now = self._clock()
        if self._last_audio is not None:
            self._metrics.gap_s.observe(now - self._last_audio)
        elif self._first_text is not None:
            self._metrics.first_audio_s.observe(now - self._first_text)
        self._last_audio = now
        self._metrics.audio_s.inc(seconds)

    def outcome(self, name: str) -> None:
        """How it ends, one of ``OUTCOMES``; while nothing is said, the client left."""
        self._outcome = name

    def over(self) -> None:
        """Nothing follows."""
        self._metrics.ended.labels(self._outcome).inc()
        if self._outcome == ErrorCode.OVERLOADED:
            self._metrics.refused.inc()


class _EngineCollector(Collector):
    """The engine's own numbers, asked for when somebody looks."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        yield GaugeMetricFamily("tts_engine_ready", "1 when the engine is warm and runs.", value=self._engine.ready)
        for name, value in self._engine.metrics().items():
            family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield family(f"tts_engine_{name}", ENGINE_HELP.get(name, f"{name} of the engine."), value=value)
