"""The sessions of one engine and what is done with them, turn by turn: who is let in, who takes part in a round, who has to leave.

Each round the scheduler says who takes part and the governor how many drafts; sessions wait here for admission, for text or for a slow
reader at no cost. Single owner, a clock of its caller's; nothing here waits. Knows streams; knows no thread and no model.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from tts_spec.engine.admission import Stay, keeps_budgets
from tts_spec.engine.governor import Governor
from tts_spec.engine.local_session import LocalSession
from tts_spec.engine.options import EngineOptions
from tts_spec.engine.scheduler import decode_now, most_frames, next_batch
from tts_spec.engine.stream import SpeechStream
from tts_spec.engine.together import together
from tts_spec.types import SpeakOptions, SpeechError

log = logging.getLogger(__name__)

LEAST_WAIT_S = 0.001


class Floor:
    """See the module."""

    def __init__(
        self,
        options: EngineOptions,
        governor: Governor,
        make_stream: Callable[[SpeakOptions], SpeechStream],
        frame_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``frame_s``: seconds of audio of a codec frame."""
        self.options = options
        self.governor = governor
        self._make_stream = make_stream
        self._frame_s = frame_s
        self._clock = clock
        self._stay = Stay()
        self._admitted: dict[int, LocalSession] = {}  # those with a slot
        self._parked: dict[int, LocalSession] = {}  # those that gave theirs back, for lack of text
        self._queue: list[LocalSession] = []  # those that wait for one
        self._refused = 0
        self._slack_min_s = 0.0
        self._load = 0.0

    @property
    def active(self) -> int:
        """Sessions that hold a slot."""
        return len(self._admitted)

    @property
    def sessions(self) -> list[LocalSession]:
        """All of them."""
        return [*self._admitted.values(), *self._parked.values(), *self._queue]

    def metrics(self) -> Mapping[str, float]:
        """See ``Engine.metrics``."""
        return {
            "sessions_active": self.active,
            "sessions_queued": len(self._queue),
            "sessions_parked": len(self._parked),
            "sessions_refused_total": self._refused,
            "slack_min_seconds": self._slack_min_s,
            "load": self._load,
            **self.governor.metrics(),
        }

    def overloaded(self, ahead: int) -> SpeechError:
        """The refusal of a session before which ``ahead`` others wait."""
        again_ms = self._stay.retry_after_ms(len(self._admitted), ahead)
        message = (
            f"{len(self._admitted)} sessions are being served and {len(self._queue)} wait: there is no room for more"
        )
        return SpeechError("overloaded", f"{message}; try again in {again_ms} ms", None, again_ms)

    def count_refusal(self) -> None:
        """A session was told ``overloaded``."""
        self._refused += 1

    def enter(self, session: LocalSession) -> None:
        """A new session; it comes in, or is refused, in its turn."""
        session.queued_at = self._clock()
        self._queue.append(session)

    def turn(self) -> float | None:
        """See to every session, do a round if there is one to do; how long to wait for commands then (None: without end)."""
        now = self._clock()
        self._dismiss()
        due = self._look_after(now)
        self._admit(now)
        self._dismiss()  # whose text was no good
        batch = self._choose(now, due)
        if batch:
            self._round(batch)
            return 0
        due += [session.queued_at + self.options.queue_wait_s for session in self._queue]
        return max(min(due) - self._clock(), LEAST_WAIT_S) if due else None

    # Who may come in

    def _admit(self, now: float) -> None:
        """Let in whom there is room for, in the order of their coming; refuse who has waited too long."""
        for session in list(self._queue):
            if self._fits(session, now):  # one who asks for much does not keep out those behind
                self._queue.remove(session)
                self._start(session, now)
        for place, session in enumerate(list(self._queue)):
            if now >= session.queued_at + self.options.queue_wait_s:
                self.count_refusal()
                self.fail(session, self.overloaded(place))

    def _fits(self, session: LocalSession, now: float) -> bool:
        if len(self._admitted) >= self.options.max_sessions:
            return False
        live = [each for each in self._admitted.values() if each.options.live]
        waiting_s = [each.slack(now) for each in live if each.heard_at is None and each.asked_at is not None]
        budget_s = session.options.budget.first_audio_ms / 1000
        limit = self.options.scheduler.load_limit
        return not session.options.live or keeps_budgets(self.governor, len(live), waiting_s, budget_s, limit)

    def _start(self, session: LocalSession, now: float) -> None:
        if session.admitted_at is None:
            session.admitted_at = now
        try:
            if session.stream is None:
                session.start(self._make_stream(session.options))
            else:
                session.stream.unpark()
        except Exception as error:
            self.fail(session, error)
        else:
            self._admitted[session.key] = session

    # Who waits, and who works

    def _look_after(self, now: float) -> list[float]:
        """End who is stuck, hurry who lacks text, park who lacks it for long; the times at which this must be done again."""
        due = []
        for session in [*self._admitted.values(), *self._parked.values()]:
            if not session.able(now, self.options.max_outstanding):
                session.hurry(now)
                if (at := self._wait(session, now)) is not None:
                    due.append(at)
            if session.key in self._parked and session.able(now, self.options.max_outstanding):
                del self._parked[session.key]
                session.queued_at = now
                self._queue.insert(0, session)  # it was here before them
        return due

    def _wait(self, session: LocalSession, now: float) -> float | None:
        """What comes of a session that cannot do a round, and when to look again."""
        if session.paused_at is not None:
            if now < (end_at := session.paused_at + self.options.stall_s):
                return end_at
            stalled = f"nothing was taken for {self.options.stall_s:g} s; allowed: a reader that reads"
            self.fail(session, SpeechError("slow_reader", stalled))
        elif session.held_at is not None:
            return session.hurry_at(now)
        elif session.dry_at is not None and session.key in self._admitted:
            if now < (park_at := session.dry_at + self.options.idle_s):
                return park_at
            assert session.stream is not None
            session.stream.park()
            self._parked[session.key] = self._admitted.pop(session.key)
        return None

    def _choose(self, now: float, due: list[float]) -> list[LocalSession]:
        """The sessions of the next round; to ``due`` goes when the first of those who rest is hungry again."""
        able = [each for each in self._admitted.values() if each.able(now, self.options.max_outstanding)]
        standings = [session.standing(now) for session in able]
        slacks = [standing.slack_s for standing in standings if standing.live]
        self._slack_min_s = min(slacks, default=0.0)
        batch = [self._admitted[key] for key in next_batch(standings, self.options.scheduler)]
        if slacks and not batch:
            due.append(now + min(slacks) - self.options.scheduler.refill_s)
        self._load = self.governor.load(len(slacks))
        self._set(batch, now)
        return batch

    def _set(self, batch: Sequence[LocalSession], now: float) -> None:
        """How many drafts each stream of ``batch`` makes, and the size of its chunk."""
        pace = self.governor.load(len(batch))
        due = []
        for session in batch:
            assert session.stream is not None
            chosen = self.governor.choose(session.stream.plan, len(batch))
            session.stream.drafter, session.stream.gamma = chosen
            slack_s = session.slack(now)
            heard = session.heard_at is not None
            session.stream.most_frames = most_frames(slack_s, session.audio_s, self._frame_s, pace) if heard else 1
            if session.stream.due:
                due.append(session.standing(now))
        holding = not decode_now(due, len(batch) - len(due))
        for session in batch:
            assert session.stream is not None
            session.stream.holding = holding

    def _round(self, batch: list[LocalSession]) -> None:
        """One step of every session of ``batch``."""
        started = self._clock()
        streams = [session.stream for session in batch if session.stream is not None]
        try:
            outcomes = together([stream.step for stream in streams], self.governor.observe_pass)
        except Exception as error:
            for session in batch:
                self.fail(session, error)
            return
        now = self._clock()
        audio_s = 0.0
        waiting = sum(session.options.live and session.heard_at is None for session in batch)
        for session, stream, outcome in zip(batch, streams, outcomes, strict=True):
            if outcome.error is not None:
                self.fail(session, outcome.error)
                continue
            session.read_chars = stream.read_chars
            chunk = outcome.value
            if chunk is not None and not session.cancelled:
                length_s = len(chunk.pcm) / chunk.sample_rate
                audio_s += length_s
                if length_s and session.options.live and session.heard_at is None and session.asked_at is not None:
                    self.governor.observe_first_audio(waiting, now - session.asked_at)
                try:
                    session.give(chunk, now)
                except Exception as error:  # the listener's own, such as an event loop that is closed: the others go on
                    self.fail(session, error)
                    continue
            if stream.finished:
                self.end(session)
        self.governor.observe_round(streams, self._clock() - started, audio_s)

    # How they leave

    def _dismiss(self) -> None:
        for session in self.sessions:
            if session.cancelled:
                self.end(session)
            elif session.broken is not None:
                self.fail(session, session.broken)

    def fail(self, session: LocalSession, error: Exception) -> None:
        """End ``session`` and report why."""
        session.cancelled = True  # what the caller still sends goes nowhere
        self._free(session)
        if not isinstance(error, SpeechError):
            log.error("a session failed", exc_info=error)
            error = SpeechError("internal", f"the engine failed on this session: {error}", None)
        try:
            session.listener(error)
        except Exception:
            log.exception("a session's listener failed")
        session.gone()

    def end(self, session: LocalSession) -> None:
        """Free everything ``session`` holds."""
        self._free(session)
        session.gone()

    def _free(self, session: LocalSession) -> None:
        self._admitted.pop(session.key, None)
        self._parked.pop(session.key, None)
        if session in self._queue:
            self._queue.remove(session)
        if session.stream is not None:
            session.stream.close()
        if session.admitted_at is not None:
            self._stay.observe(self._clock() - session.admitted_at)
