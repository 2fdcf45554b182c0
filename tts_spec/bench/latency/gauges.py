"""What a server says about itself at ``/metrics`` and ``/health``. Knows our names; another server simply has none of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tts_spec.bench.latency.distribution import histogram_percentile

LAG = "tts_event_loop_lag_seconds"
ACTIVE = "tts_engine_sessions_active"
OVERHEAD = "tts_chunk_overhead_seconds"
RSS = (
    "process_resident_memory_bytes",
    "tts_engine_resident_memory_bytes",
)  # of the server, and of its engine's process


@dataclass(frozen=True, slots=True)
class Scrape:
    """One answer of ``/metrics``, unlabelled samples by name and histograms by bucket."""

    values: dict[str, float]
    buckets: dict[str, dict[float, float]]  # of a histogram: upper bound -> values up to it

    @classmethod
    def parse(cls, text: str) -> Scrape:
        values: dict[str, float] = {}
        buckets: dict[str, dict[float, float]] = {}
        for family in text_string_to_metric_families(text):
            for name, labels, value, *_ in family.samples:
                if not labels:
                    values[name] = value
                elif set(labels) == {"le"}:
                    buckets.setdefault(family.name, {})[float(labels["le"])] = value
        return cls(values, buckets)

    @property
    def rss_mb(self) -> float | None:
        """Memory of all processes of the server; None when it does not tell."""
        told = [self.values[name] for name in RSS if name in self.values]
        return sum(told) / 2**20 if told else None

    def percentiles_since(self, before: Scrape, name: str) -> dict[str, float | None]:
        """p50, p95 and p99 in milliseconds of what the histogram saw since ``before``."""
        old, new = before.buckets.get(name, {}), self.buckets.get(name, {})
        counts = [(bound, new[bound] - old.get(bound, 0)) for bound in sorted(new)]
        found = {f"p{percent}": histogram_percentile(counts, percent) for percent in (50, 95, 99)}
        return {key: value and round(value * 1000, 2) for key, value in found.items()}


class Gauges:
    """Asks one server. Close it when done."""

    def __init__(self, url: str) -> None:
        # An idle connection is given up well before the server drops it: a request sent just then would be lost.
        limits = httpx.Limits(keepalive_expiry=1.0)
        self._client = httpx.AsyncClient(base_url=url, trust_env=False, timeout=60.0, limits=limits)

    async def close(self) -> None:
        await self._client.aclose()

    async def scrape(self) -> Scrape | None:
        """``/metrics`` now; None when the server has none."""
        try:
            answer = await self._client.get("/metrics")
        except httpx.HTTPError:
            return None
        return Scrape.parse(answer.text) if answer.status_code == httpx.codes.OK else None

    async def health(self) -> dict[str, Any] | None:
        """``/health`` now; None when the server has none of ours."""
        try:
            answer = await self._client.get("/health")
            found = answer.json() if answer.status_code == httpx.codes.OK else None
        except (httpx.HTTPError, ValueError):
            return None
        return found if isinstance(found, dict) and "engine" in found else None

    async def active(self) -> int:
        """Sessions that hold resources of the engine. Raises TimeoutError when the server does not say."""
        health = await self.health()
        if health is None:
            raise TimeoutError("the server does not tell its active sessions")
        return int(health["engine"]["active"])

    async def ready(self) -> bool:
        try:
            return (await self._client.get("/ready")).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False
