"""The values that cross the borders of the library: what to speak, and what comes back.

Knows no torch, no socket and no model; every other package may import it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

Pcm = npt.NDArray[np.float32]  # [N] mono samples in [-1, 1]

DrafterName = Literal["none", "model", "early-exit", "medusa", "lookahead", "feature", "auto"]
SpeculationMode = Literal["coupled", "ratio"]


class SpeechError(ValueError):
    """A request that cannot be served.

    Attributes:
        code: machine-readable kind, e.g. ``invalid_value``, ``unknown_voice``, ``overloaded``.
        field: the name of the offending field, or None when no single field is at fault.
        retry_after_ms: with ``overloaded``, when there may be room again; else None.
    """

    def __init__(self, code: str, message: str, field: str | None = None, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.retry_after_ms = retry_after_ms

    def __reduce__(self) -> tuple[type[SpeechError], tuple[str, str, str | None, int | None]]:
        """Exceptions pickle their message alone; this one crosses processes whole."""
        return type(self), (self.code, self.message, self.field, self.retry_after_ms)


@dataclass(frozen=True, slots=True)
class SpeechWarning:
    """Something in the text that is not spoken as written. ``start``/``end`` are offsets in the caller's text."""

    code: str
    message: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Word:
    """One spoken word: where it stands in the caller's text and when it sounds, in seconds of the stream."""

    text: str
    start_char: int
    end_char: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class WordOnset:
    """A word that begins to sound; the ``Word`` follows when it is over."""

    text: str
    start_char: int
    end_char: int
    start_s: float


@dataclass(frozen=True, slots=True)
class Budget:
    """What a live listener is promised. The engine takes a session only if it can keep this for everybody."""

    first_audio_ms: float = 150.0  # from the first text to speak to the first audio
    max_gap_ms: float = 0.0  # longest silence while audio is being played; 0 = no underrun

    def __post_init__(self) -> None:
        _in_range("first_audio_ms", self.first_audio_ms, 1.0, 60_000.0)
        _in_range("max_gap_ms", self.max_gap_ms, 0.0, 60_000.0)


@dataclass(frozen=True, slots=True)
class SpeakOptions:
    """How to speak. Everything has a default; every bad value raises ``SpeechError`` naming the field.

    ``None`` for a sampling field means the bundle's own default.
    """

    voice: str | None = (
        None  # a name from Synthesizer.voices, or a mix, "heart(2)+michael(1)"; None = the bundle's first
    )
    speed: float = 1.0  # 0.7 .. 1.4, 1 = the teacher's own pace
    seed: int = 0  # 0 .. 2**63 - 1; in coupled mode the same seed gives the same tokens, whatever the drafter
    temperature: float | None = None  # 0 .. 2; 0 = the most probable token
    top_k: int | None = None  # 0 = off
    top_p: float | None = None  # 0 < top_p <= 1; 1 = off
    repetition_penalty: float | None = None  # 1 .. 2; 1 = off
    drafter: DrafterName | None = None  # None = auto: the fastest, none included, by what is measured
    gamma: int | None = None  # drafted tokens in a round, 0 .. 15; by auto at most so many
    mode: SpeculationMode = (
        "coupled"  # "ratio": more drafts are accepted; same distribution, but not the same tokens as plain
    )
    # What follows is for sessions of an engine.
    live: bool = (
        True  # somebody listens: at most a few seconds ahead of the playback. False: a file, as fast as possible
    )
    budget: Budget = field(default_factory=Budget)
    max_wait_ms: float = 1000.0  # how long text may lack the rest of its clause before it is spoken as it is

    def __post_init__(self) -> None:
        _in_range("speed", self.speed, 0.7, 1.4)
        _in_range("temperature", self.temperature, 0.0, 2.0)
        _in_range("top_p", self.top_p, 1e-6, 1.0)
        _in_range("repetition_penalty", self.repetition_penalty, 1.0, 2.0)
        _int_in_range("seed", self.seed, 0, 2**63 - 1)
        _int_in_range("top_k", self.top_k, 0, 1_000_000)
        _int_in_range("gamma", self.gamma, 0, 15)
        names = get_args(DrafterName)
        if self.drafter is not None and self.drafter not in names:
            raise SpeechError("invalid_value", f"drafter is {self.drafter!r}; allowed: {', '.join(names)}", "drafter")
        if self.mode not in ("coupled", "ratio"):
            raise SpeechError("invalid_value", f"mode is {self.mode!r}; allowed: coupled, ratio", "mode")
        if not isinstance(self.live, bool):
            raise SpeechError("invalid_value", f"live is {self.live!r}; allowed: true, false", "live")
        if not isinstance(self.budget, Budget):
            raise SpeechError("invalid_value", f"budget is {self.budget!r}; allowed: a Budget", "budget")
        _in_range("max_wait_ms", self.max_wait_ms, 0.0, 60_000.0)


@dataclass(frozen=True, slots=True)
class SpeechStats:
    """Counters of one utterance stream. Times are wall-clock seconds or milliseconds as the name says."""

    audio_s: float
    wall_s: float  # of work on this stream; waiting for text or for the reader is not counted
    rounds_s: float  # of it in speculative rounds; the rest is text, codec and bookkeeping
    first_audio_ms: float | None  # from the start of the request to the first chunk; None when there was no audio
    tokens: int  # codec tokens and ADVANCE/END decisions committed (forced phonemes not counted)
    target_passes: int
    drafted: int
    accepted: int
    tried_by_codebook: tuple[int, ...]  # drafts compared, by the codebook due (0: with ADVANCE and END)
    accepted_by_codebook: tuple[int, ...]
    drafter: str  # as asked for
    gamma: int
    seed: int
    token_hash: str  # SHA-256 over the committed token stream
    passes_by_drafter: dict[str, int] = field(default_factory=dict)  # target passes, by who guessed for them
    capped: int = 0  # phonemes that were ended because they had lasted as long as they may

    @property
    def rtf(self) -> float:
        """Seconds of compute per second of audio; 0 when there is no audio."""
        return self.wall_s / self.audio_s if self.audio_s else 0.0

    @property
    def tau(self) -> float:
        """Tokens emitted per target pass, the free one counted; 0 when there was no pass."""
        return self.tokens / self.target_passes if self.target_passes else 0.0

    def as_dict(self) -> dict[str, Any]:
        names = self.__dataclass_fields__
        return {name: getattr(self, name) for name in names} | {"rtf": self.rtf, "tau": self.tau}


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of the stream: new audio and whatever became known with it.

    ``accepted`` has one entry per token decision committed for this audio: True = it was drafted and accepted, False = the
    target's own token (a correction, or the free one of a round).
    """

    pcm: Pcm
    sample_rate: int
    words: tuple[Word, ...] = ()
    onsets: tuple[
        WordOnset, ...
    ] = ()  # words that begin in this audio or soon after it; each comes once, never later than its sound
    warnings: tuple[SpeechWarning, ...] = ()
    accepted: tuple[bool, ...] = ()
    flushed: int = 0  # how many flush marks of the caller were passed with this chunk
    stats: SpeechStats | None = None  # set on the last chunk of the stream only
    made_at: float | None = None  # when an engine had it, on ``time.monotonic``, which all processes of a machine share


@dataclass(frozen=True, slots=True)
class Speech:
    """A whole utterance."""

    pcm: Pcm
    sample_rate: int
    words: tuple[Word, ...]
    warnings: tuple[SpeechWarning, ...]
    stats: SpeechStats


@dataclass(frozen=True, slots=True)
class VoiceInfo:
    """A voice of the bundle."""

    name: str
    language: str  # BCP 47, e.g. en-US
    gender: str
    description: str = field(default="")


def _in_range(name: str, value: float | None, low: float, high: float) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise SpeechError("invalid_value", f"{name} is {value!r}; allowed: a number from {low:g} to {high:g}", name)


def _int_in_range(name: str, value: int | None, low: int, high: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise SpeechError("invalid_value", f"{name} is {value!r}; allowed: a whole number from {low} to {high}", name)
