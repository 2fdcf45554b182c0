"""A floor with a clock of the tests' own and streams that speak by arithmetic: every time is exact. Knows no model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from tts_spec.engine.floor import Floor
from tts_spec.engine.governor import Governor
from tts_spec.engine.local_session import LocalSession
from tts_spec.engine.options import EngineOptions
from tts_spec.engine.port import Event
from tts_spec.engine.scheduler import RAMP
from tts_spec.types import Chunk, SpeakOptions, SpeechError

RATE = 24_000
FRAME_S = 0.025


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Words:
    """A stream that says a frame a round; a character is a frame. A "." ends a clause, text without one is held back."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._held = ""
        self._frames = 0
        self._made = 0
        self._ended = False
        self.read_chars = 0
        self.most_frames = 0
        self.holding = False
        self._chunks = 0
        self.drafter, self.gamma = "none", 0
        self.plan = None
        self.finished = False
        self.hurried: list[tuple[float, bool]] = []
        self.closed = self.parked = False

    def text(self, piece: str) -> None:
        if piece == "bad":
            raise ValueError(piece)
        clauses, dot, self._held = (self._held + piece).rpartition(".")
        self._frames += len(clauses + dot)

    def flush(self) -> None:
        self._frames += len(self._held)
        self._held = ""

    def end(self) -> None:
        self.flush()
        self._ended = True

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def hurry(self, whole: bool) -> None:
        self.hurried.append((self._world.clock.now, whole))
        if whole:
            self.flush()
        else:
            words, space, self._held = self._held.rpartition(" ")
            self._frames += len(words + space)

    @property
    def _wanted(self) -> int:
        return min(RAMP[min(self._chunks, len(RAMP) - 1)], self.most_frames)

    @property
    def due(self) -> bool:
        return self._made + 1 >= self._wanted

    @property
    def ready(self) -> bool:
        return not self.finished and (self._frames > 0 or self._ended)

    def step(self) -> Chunk | None:
        self._world.stepped(self)
        if self._frames:
            self._frames -= 1
            self._made += 1
        self.finished = self._ended and not self._frames
        if (self.holding or self._made < self._wanted) and self._frames:
            return None
        pcm = np.zeros(round(self._made * FRAME_S * RATE), np.float32)
        self._made = 0
        self._chunks += 1
        return Chunk(pcm, RATE, stats=cast(Any, "stats") if self.finished else None)

    def take_round(self) -> None: ...

    def park(self) -> None:
        self.parked = True

    def unpark(self) -> None:
        self.parked = False

    def close(self) -> None:
        self.closed = True


class Costs:
    """What the engine is told about itself: ``round_s`` a session and round; a frame a round."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.first: list[tuple[int, float]] = []

    def load(self, sessions: int) -> float:
        return sessions * self._world.round_s / FRAME_S

    def first_audio_s(self, sessions: int) -> float:
        return sessions * self._world.round_s

    def choose(self, *_: object) -> tuple[str, int]:
        return "none", 0

    def observe_pass(self, _: object) -> None: ...

    def observe_round(self, streams: Sequence[object], *_: object) -> None:
        self._world.batches.append(len(streams))

    def observe_first_audio(self, sessions: int, seconds: float) -> None:
        self.first.append((sessions, seconds))

    def metrics(self) -> dict[str, float]:
        return {}


class Listener:
    """Takes every chunk at once, unless it is ``slow``."""

    def __init__(self, world: World, slow: bool = False) -> None:
        self.world = world
        self.slow = slow
        self.at: list[float] = []
        self.audio: list[float] = []
        self.error: SpeechError | None = None
        self.over = False
        self.session: LocalSession

    def __call__(self, event: Event) -> None:
        if isinstance(event, SpeechError):
            self.error = event
            return
        if len(event.pcm):
            self.at.append(self.world.clock.now)
            self.audio.append(len(event.pcm) / RATE)
        self.over = self.over or event.stats is not None
        if not self.slow:
            self.session.consumed()

    @property
    def gaps(self) -> list[float]:
        """Seconds for which a player that began with the first chunk had nothing to play, one entry a gap."""
        found, played_out = [], self.at[0] if self.at else 0.0
        for at, audio in zip(self.at, self.audio, strict=True):
            if at > played_out + 1e-9:
                found.append(at - played_out)
                played_out = at
            played_out += audio
        return found


class World:
    """A floor, its clock, and its streams; a session's share of a round takes ``round_s``."""

    def __init__(self, round_s: float = 0.002, **options: Any) -> None:
        self.clock = Clock()
        self.round_s = round_s
        self.streams: list[Words] = []
        self.rounds: list[Words] = []
        self.batches: list[int] = []  # sessions of each round
        self.costs = Costs(self)
        self.inbox: list[Callable[[], None]] = []
        self.freed = 0
        self.floor = Floor(
            EngineOptions(**options), cast(Governor, self.costs), lambda _: cast(Any, self._make()), FRAME_S, self.clock
        )

    def _make(self) -> Words:
        self.streams.append(Words(self))
        return self.streams[-1]

    def stepped(self, stream: Words) -> None:
        self.clock.now += self.round_s
        self.rounds.append(stream)

    def _free(self) -> None:
        self.freed += 1

    def open(self, text: str = "", *, end: bool = False, slow: bool = False, **fields: Any) -> Listener:
        listener = Listener(self, slow)
        session = LocalSession(
            self.inbox.append,
            SpeakOptions(**fields),
            listener,
            len(self.streams) + 1000 * self.freed + id(listener),
            10**6,
            self._free,
        )
        listener.session = session
        self.floor.enter(session)
        if text:
            session.text(text)
        if end:
            session.end()
        return listener

    def run(self, until: float) -> None:
        """Turn after turn, waiting as long as the floor says or until a command comes."""
        while self.clock.now < until:
            wait_s = self.floor.turn()
            if self.inbox:
                commands, self.inbox[:] = list(self.inbox), []
                for command in commands:
                    command()
            elif wait_s is None:
                self.clock.now = until
            else:
                self.clock.now = min(self.clock.now + wait_s, max(until, self.clock.now))
