"""``tts-spec bench latency``: which server, which settings, and what comes out. The measuring is elsewhere (``measure``)."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from tts_spec.bench.latency.baseline import BaselineTarget, speaker
from tts_spec.bench.latency.elevenlabs import ElevenLabsTarget
from tts_spec.bench.latency.gauges import Gauges
from tts_spec.bench.latency.measure import Measured, measure
from tts_spec.bench.latency.native import NativeTarget
from tts_spec.bench.latency.openai import OpenAiTarget
from tts_spec.bench.latency.options import LatencyOptions
from tts_spec.bench.latency.plot import plot
from tts_spec.bench.latency.protocols import NATIVE, Beside, InTurn, beside_native, by_protocol
from tts_spec.bench.latency.report import as_dict, figures, show, show_beside
from tts_spec.bench.latency.server import serving
from tts_spec.bench.latency.target import Target
from tts_spec.types import SpeechError

DEFAULT = "default"  # the setting in which nothing is said about the drafter
PROTOCOLS = (NATIVE, "openai", "elevenlabs")


@dataclass(frozen=True, slots=True)
class Where:
    """What to drive: a server at ``url``, or a ``baseline`` in this process, or else a server that we start."""

    url: str | None = None  # http://host:port
    protocol: str = NATIVE  # or several, parted by commas: measured in one load, utterance by utterance in turn
    model: str = "tts-1"  # for OpenAI's protocol only
    baseline: str | None = None
    serve_arguments: tuple[str, ...] = ()  # for ``tts-spec serve``
    nice: int = 0  # of this process, once the server runs; it keeps its own priority

    def __post_init__(self) -> None:
        if not set(self.protocols) <= set(PROTOCOLS) or len(set(self.protocols)) < len(self.protocols):
            raise SpeechError(
                "invalid_value",
                f"protocol is {self.protocol!r}; allowed: different ones of {', '.join(PROTOCOLS)}",
                "protocol",
            )
        if self.baseline is not None and self.url is not None:
            raise SpeechError("invalid_value", f"url is {self.url!r}; allowed with a baseline: none", "url")

    @property
    def protocols(self) -> tuple[str, ...]:
        """What is spoken, in turn."""
        return tuple(self.protocol.split(","))

    def check(self, options: LatencyOptions) -> None:
        """Raises SpeechError for options that cannot be measured here."""
        peer = self.protocols != (NATIVE,) or self.baseline is not None
        if peer and options.settings != (DEFAULT,):
            raise SpeechError(
                "invalid_value", "settings are for the native protocol only: drafters are ours", "settings"
            )
        if "openai" in self.protocols and options.words_per_s is not None:
            raise SpeechError(
                "invalid_value",
                "words_per_s cannot be had with protocol openai: it takes the text whole",
                "words_per_s",
            )


def run(options: LatencyOptions, where: Where, console: Console, picture: Path | None = None) -> dict[str, Any]:
    """Measure, print tables on ``console``, write the ``picture`` (PNG). The result is the last setting's, and has all settings in it."""
    where.check(options)
    results, compared = asyncio.run(_run(options, where, console))
    target = where.baseline or where.url or "tts-spec serve"
    for name, result in results.items():
        show(
            target if name == DEFAULT else f"{target}, {name}",
            _load(options, result),
            result.figures,
            result.watch,
            console,
        )
    show_beside(compared, console)
    if picture is not None:
        plot({name: result.heard for name, result in results.items()}, picture)
    settings = {name: _json(result) for name, result in results.items()}
    last = list(settings)[-1]
    return {
        "bench": "latency",
        "target": target,
        "protocol": "in process" if where.baseline else where.protocol,
        "cpu": _cpu(),
        "rate": options.rate,
        "words_per_s": options.words_per_s,
        "seconds": options.seconds,
        "budget_ms": options.budget_ms,
        "setting": last,
        **settings[last],
        "settings": settings,
        "beside_native": {name: each.as_dict() for name, each in compared.items()},
    }


async def _run(
    options: LatencyOptions, where: Where, console: Console
) -> tuple[dict[str, Measured], dict[str, Beside]]:
    """By drafter, or where several protocols are measured, by protocol, with their comparison."""
    results: dict[str, Measured] = {}
    async with _server(where) as url, _target(options, where, url) as (target, gauges):
        if len(where.protocols) > 1:
            return await _compare(options, where.protocols, target, gauges, console)
        drafters = await _drafters(options.settings, gauges, console)
        for setting in options.settings:
            console.print(f"measuring {setting}", markup=False)
            results[setting] = await measure(target, gauges, options, drafters[setting], console)
    return results, {}


async def _compare(
    options: LatencyOptions, protocols: Sequence[str], target: Target, gauges: Gauges | None, console: Console
) -> tuple[dict[str, Measured], dict[str, Beside]]:
    if options.voice is None and gauges is not None and (health := await gauges.health()) is not None:
        options = replace(options, voice=health["engine"]["voices"][0])  # each protocol has its own default
    console.print(f"measuring {', '.join(protocols)} in turn", markup=False)
    whole = await measure(target, gauges, options, None, console, protocols=protocols)
    parts = {
        name: replace(whole, heard=heard, figures=figures(heard, harness_lag_s=whole.watch.harness_lag_s))
        for name, heard in by_protocol(whole.heard, protocols).items()
    }
    return parts, beside_native(whole.heard, protocols)


@asynccontextmanager
async def _server(where: Where) -> AsyncIterator[str | None]:
    """The address of the server to measure, which runs or is started; None for a baseline."""
    if where.baseline is not None or where.url is not None:
        yield where.url
        return
    async with serving(where.serve_arguments) as url:
        os.nice(where.nice)  # only now: the server keeps its priority
        yield url


@asynccontextmanager
async def _target(
    options: LatencyOptions, where: Where, url: str | None
) -> AsyncIterator[tuple[Target, Gauges | None]]:
    if url is None:
        assert where.baseline is not None
        speak = await asyncio.to_thread(speaker, where.baseline, options.voice)
        async with _closing(BaselineTarget(speak), None) as pair:
            yield pair
        return
    gauges = Gauges(url)
    sockets = url.replace("http", "ws", 1).rstrip("/")
    makers: dict[str, Callable[[], Target]] = {
        "openai": lambda: OpenAiTarget(url, where.model),
        "elevenlabs": lambda: ElevenLabsTarget(sockets),
        NATIVE: lambda: NativeTarget(f"{sockets}/v1/stream", gauges.active),
    }
    targets = {name: makers[name]() for name in where.protocols}
    target = InTurn(targets) if len(targets) > 1 else targets[where.protocol]
    async with _closing(target, gauges) as pair:
        yield pair


@asynccontextmanager
async def _closing(target: Target, gauges: Gauges | None) -> AsyncIterator[tuple[Target, Gauges | None]]:
    try:
        yield target, gauges
    finally:
        await target.close()
        if gauges is not None:
            await gauges.close()


async def _drafters(settings: Sequence[str], gauges: Gauges | None, console: Console) -> dict[str, str | None]:
    """What to send for each setting. Raises SpeechError for a drafter that the server does not have."""
    drafters: dict[str, str | None] = {}
    health = await gauges.health() if gauges is not None else None
    known = health["engine"]["drafters"] if health is not None else []
    for name in settings:
        if name == DEFAULT:
            drafters[name] = None
        elif name in known:
            drafters[name] = name
        elif name == "auto":
            console.print("auto: the server has no drafter of that name; its default is measured", style="yellow")
            drafters[name] = None
        else:
            allowed = ", ".join([DEFAULT, "auto", *known])
            raise SpeechError("invalid_value", f"settings has {name!r}; allowed: {allowed}", "settings")
    return drafters


def _json(result: Measured) -> dict[str, Any]:
    return {"sessions": result.sessions, "capacity": result.capacity, **as_dict(result.figures, result.watch)}


def _load(options: LatencyOptions, result: Measured) -> str:
    load = f"{options.rate:g} listeners a second" if options.rate is not None else f"{result.sessions} live sessions"
    if result.capacity is not None:
        load += f" (capacity {result.capacity})"
    return load if options.words_per_s is None else f"{load}, text at {options.words_per_s:g} words a second"


def _cpu() -> str:
    """Model and number of processors, as figures on CPU mean little without."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{os.cpu_count()} x {model or platform.machine()}"
