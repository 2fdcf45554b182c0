"""The Python API: load a bundle once, then speak whole texts or stream them.

Knows bundles and streams; knows no socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from models.bundle import Bundle, BundleError, load
from tts_spec.engine.local import LocalEngine
from tts_spec.engine.options import EngineOptions
from tts_spec.engine.plan import SpeechPlan, plan
from tts_spec.engine.policy import Policy
from tts_spec.engine.port import Event
from tts_spec.engine.stream import SpeechStream
from tts_spec.text.frontend import Frontend
from tts_spec.text.symbols import table_hash
from tts_spec.types import Chunk, SpeakOptions, Speech, SpeechError, VoiceInfo

STARTER = Path(__file__).resolve().parent.parent / "models" / "starter"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Synthesizer:
    """A loaded bundle. Streams of one synthesizer may run in several threads; each stream has one reader."""

    def __init__(self, bundle: Bundle, frontend: Frontend) -> None:
        self.bundle = bundle
        self.frontend = frontend
        self._engine: LocalEngine | None = None
        self._policies: list[Policy] = []  # of streams that are over

    @classmethod
    def load(
        cls,
        bundle: Path | str | None = None,
        device: str = "auto",
        dtype: str = "auto",
        lexicon: Mapping[str, str] | None = None,
    ) -> Synthesizer:
        """Load ``bundle`` (default: the starter voice).

        Args:
            bundle: folder with a ``bundle.json``.
            device: ``auto`` (CUDA if there is one), ``cpu``, ``cuda`` or ``cuda:N``.
            dtype: the target's arithmetic: ``auto`` (bfloat16 where the processor has it), ``float32`` or ``bfloat16``.

            lexicon: word -> how it is read, as other words or as IPA between slashes; see ``tts_spec/text/lexicon.py``.

        Raises:
            SpeechError: ``invalid_value`` for device, dtype or an entry of the lexicon.
            BundleError: the bundle is missing, damaged or of another format.
        """
        chosen = _device(device)
        loaded = load(Path(bundle) if bundle is not None else STARTER, chosen, _dtype(dtype, chosen))
        if loaded.manifest.symbols_sha256 != table_hash():
            raise BundleError("the bundle's weights were trained with another table of phoneme symbols")
        synthesizer = cls(loaded, Frontend(lexicon))
        synthesizer.warm()
        return synthesizer

    def warm(self, voice: str | None = None) -> None:
        """Speak a word unheard with every drafter, for ``auto`` may turn to any, so that the next text in ``voice`` waits for no compiled
        kernel and no dictionary. ``load`` does it for the first voice; the other accent has a dictionary of its own (half a second)."""
        for drafter in self.bundle.manifest.drafter_names:
            self.speak("Ready.", voice=voice, drafter=drafter)

    @property
    def sample_rate(self) -> int:
        """Samples a second of all audio."""
        return self.bundle.codec.sample_rate

    @property
    def voices(self) -> tuple[VoiceInfo, ...]:
        """The bundle's voices; the first is the default."""
        return tuple(VoiceInfo(v.name, v.language, v.gender, v.description) for v in self.bundle.manifest.voices)

    def stream(self, text: str | Iterable[str], options: SpeakOptions | None = None, **fields: Any) -> Iterator[Chunk]:
        """Speak ``text`` (a string, or pieces as they come), yielding chunks as frames are committed; the last one has stats.

        Options are a SpeakOptions or its fields as keywords, not both. Raises SpeechError for a bad one.
        """
        planned = plan(self.bundle.manifest, _options(options, fields))
        return self._run(planned, [text] if isinstance(text, str) else text)

    def speak(self, text: str, options: SpeakOptions | None = None, **fields: Any) -> Speech:
        """Speak ``text`` and return it whole."""
        chunks = list(self.stream(text, options, **fields))
        stats = chunks[-1].stats
        assert stats is not None
        return Speech(
            pcm=np.concatenate([chunk.pcm for chunk in chunks]),
            sample_rate=self.sample_rate,
            words=tuple(word for chunk in chunks for word in chunk.words),
            warnings=tuple(warning for chunk in chunks for warning in chunk.warnings),
            stats=stats,
        )

    async def astream(
        self, text: str | AsyncIterable[str], options: SpeakOptions | None = None, **fields: Any
    ) -> AsyncIterator[Chunk]:
        """Like ``stream`` for asyncio; the work is done on the engine's thread. Leaving the loop early cancels it.

        It is made for a listener, a few seconds ahead of the playback at most; with ``live=False`` as fast as possible.
        """
        loop = asyncio.get_running_loop()
        # Bounded by the engine, which pauses while too many chunks are not consumed.
        events: asyncio.Queue[Chunk | Exception] = asyncio.Queue()

        def listen(event: Event) -> None:
            loop.call_soon_threadsafe(events.put_nowait, event)

        session = self.engine().open(_options(options, fields), listen)

        async def feed() -> None:
            try:
                if isinstance(text, str):
                    session.text(text)
                else:
                    async for piece in text:
                        session.text(piece)
                session.end()
            except Exception as error:
                events.put_nowait(error)  # the caller's own iterable failed: it hears of it where it reads

        feeding = asyncio.create_task(feed())
        try:
            while True:
                event = await events.get()
                if isinstance(event, Exception):
                    raise event
                session.consumed()
                yield event
                if event.stats is not None:
                    return
        finally:
            feeding.cancel()
            session.cancel()

    def _run(self, planned: SpeechPlan, pieces: Iterable[str]) -> Iterator[Chunk]:
        try:  # what streams learnt of the machine goes on from one to the next; none is used by two at once
            policy = self._policies.pop()
        except IndexError:
            policy = Policy(self.bundle.manifest)
        stream = SpeechStream(self.bundle, self.frontend, planned, policy=policy)
        try:
            for piece in pieces:
                stream.text(piece)
                while stream.ready:
                    chunk = stream.step()
                    if chunk is not None:
                        yield chunk
            stream.end()
            while not stream.finished:
                chunk = stream.step()
                if chunk is not None:
                    yield chunk
        finally:
            self._policies.append(policy)

    def engine(self, options: EngineOptions | None = None) -> LocalEngine:
        """The engine of this bundle, started at the first call, which alone may give ``options``."""
        if self._engine is None:
            self._engine = LocalEngine(self.bundle, self.frontend, options)
        elif options is not None:
            raise ValueError("options: the engine is already running")
        return self._engine

    def close(self) -> None:
        """Stop the engine's thread, if it runs."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def _options(options: SpeakOptions | None, fields: dict[str, Any]) -> SpeakOptions:
    if options is None:
        unknown = sorted(set(fields) - set(SpeakOptions.__dataclass_fields__))
        if unknown:
            allowed = ", ".join(SpeakOptions.__dataclass_fields__)
            raise SpeechError("unknown_field", f"{unknown[0]} is no option; allowed: {allowed}", unknown[0])
        return SpeakOptions(**fields)
    if fields:
        raise SpeechError("invalid_value", "give options or single fields, not both", "options")
    return options


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise SpeechError("invalid_value", f"device is {name!r}; allowed: auto, cpu, cuda, cuda:N", "device")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SpeechError("invalid_value", f"device is {name!r}, but this machine has no CUDA device", "device")
    return device


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        fast = device.type == "cuda" or torch.ops.mkldnn._is_mkldnn_bf16_supported()
        return torch.bfloat16 if fast else torch.float32
    if name not in DTYPES:
        raise SpeechError("invalid_value", f"dtype is {name!r}; allowed: auto, {', '.join(DTYPES)}", "dtype")
    return DTYPES[name]
