"""Speaks over HTTP as OpenAI's ``POST /v1/audio/speech`` does, raw 16-bit PCM streamed back. For peers that offer this and no more."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

import httpx

from tts_spec.bench.latency.target import Clock
from tts_spec.bench.latency.utterance import Leave, Outcome, Utterance

KEEP_S = 1.0  # well before servers drop an idle connection (often after five): a request sent just then is lost


class OpenAiTarget:
    """See ``Target``. The protocol has no cancel: whoever leaves drops the connection."""

    leaves: tuple[Leave, ...] = (Leave.DISCONNECT,)

    def __init__(
        self, url: str, model: str = "tts-1", sample_rate: int = 24_000, clock: Clock = time.perf_counter_ns
    ) -> None:
        """``url`` is the server's, without ``/v1/audio/speech``; ``sample_rate`` is that of its ``pcm``, which nothing in it tells."""
        self._client = httpx.AsyncClient(
            base_url=url,
            trust_env=False,  # a proxy of the environment would be what is measured
            timeout=httpx.Timeout(30.0),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=1000, keepalive_expiry=KEEP_S),
        )
        self._model = model
        self._sample_rate = sample_rate
        self._clock = clock

    async def close(self) -> None:
        """See ``Target.close``."""
        await self._client.aclose()

    async def speak(self, utterance: Utterance) -> None:
        """See ``Target.speak``. t0 is when the first byte of the body leaves, as in nari's harness."""
        request = utterance.request
        body = json.dumps(
            {
                "model": self._model,
                "voice": request.voice or "alloy",
                "input": request.text,
                "response_format": "pcm",
                "stream_format": "audio",
                "seed": request.seed,  # not in OpenAI's schema; servers that have none do not look at it
            }
        ).encode()

        async def send() -> AsyncIterator[bytes]:
            utterance.sent_ns = self._clock()
            yield body

        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        utterance.sample_rate = self._sample_rate
        leave_at: float | None = None  # on the loop's clock
        try:
            async with self._client.stream("POST", "/v1/audio/speech", content=send(), headers=headers) as answer:
                if answer.status_code != httpx.codes.OK:
                    text = (await answer.aread()).decode(errors="replace")[:200]
                    utterance.fail(f"HTTP {answer.status_code}: {text}", refused=answer.status_code in (429, 503))
                    return
                async with asyncio.timeout_at(None) as patience:
                    async for data in answer.aiter_raw():
                        utterance.hear(self._clock(), data)
                        if request.leave is not None and leave_at is None and utterance.arrivals:
                            leave_at = asyncio.get_running_loop().time() + request.leave_after_s
                            patience.reschedule(leave_at)
                utterance.ended_ns, utterance.outcome = self._clock(), Outcome.COMPLETE
        except TimeoutError:  # ours: httpx has its own kind
            utterance.left_ns, utterance.outcome = self._clock(), Outcome.LEFT
        except httpx.HTTPError as error:
            utterance.fail(f"{type(error).__name__}: {error}")
