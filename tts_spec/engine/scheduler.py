"""Who takes part in the next round, with how many drafts, and whether one more may come in. Pure: time comes in as numbers.

Deadlines: a session's slack is the audio sent ahead of its playback, or before its first audio the time left of its budget. Rounds serve
least slack first; who has not been heard yet is not made to wait for the comfortable. Knows no model, no text and no thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts_spec.engine.estimates import Acceptance, LinearCost

SIZES = (1, 2, 4, 8, 12)  # frames of a chunk
RAMP = (1, 1, 1, 2, 2, 2, 4, 4, 8, 8, 12)  # of the first, the second and so on: no gap up to 0.7 of real time
YOUNG_S = 0.3  # a playback shorter than this has chunks of one frame if need be; later they cost the codec too much
LATE = 4  # frames of a chunk when it is too late anyway
HOLD_S = 0.5  # with so much slack a chunk waits until others have one, too: the codec decodes them together
MARGIN = 1.5  # a chunk may take this much longer than expected without a gap
GAMMAS = (1, 2, 3, 4, 5, 7, 9, 11, 15)
WORTH = 1.03  # times as many tokens a second as without drafts; what is learnt of costs is not exact


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Times in seconds."""

    max_batch: int = 16  # sessions of one round
    look_ahead_s: float = 3.0  # a live session rests when it is this far ahead of its playback
    refill_s: float = 1.5  # and no round is done for live sessions before one of them has less than this
    urgent_s: float = 0.1  # slack below which a session is as urgent as one that has not been heard
    comfort_s: float = 0.4  # slack beyond which a session steps back while another is urgent
    load_limit: float = 0.85  # share of the time the engine may plan for live sessions; above 1 it promises too much

    def __post_init__(self) -> None:
        if not isinstance(self.max_batch, int) or self.max_batch < 1:
            raise ValueError(f"max_batch is {self.max_batch!r}; allowed: a whole number from 1")
        for name in ("look_ahead_s", "refill_s", "urgent_s", "comfort_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)!r}; allowed: seconds above 0")
        if not self.load_limit > 0:
            raise ValueError(f"load_limit is {self.load_limit!r}; allowed: above 0")


@dataclass(frozen=True, slots=True)
class Standing:
    """How one session stands at this moment."""

    key: int
    heard: bool  # its first audio has left
    slack_s: float  # audio ahead of playback; before the first audio: time left of its budget
    live: bool = True  # somebody listens at the pace of the audio; False = a file, as fast as possible
    gap_s: float = 0.0  # silence that its listener puts up with


def next_batch(standings: Sequence[Standing], options: SchedulerOptions) -> list[int]:
    """Keys of the sessions of the next round, most urgent first; only sessions that could do a round may be given.

    A round of one costs almost as much as one of many: there is none before a session needs it, and then everybody takes part who may.
    """
    if all(each.live and each.heard and each.slack_s >= options.refill_s for each in standings):
        return []
    hungry = [each for each in standings if not each.live or not each.heard or each.slack_s < options.look_ahead_s]
    urgent = any(each.live and (not each.heard or each.slack_s + each.gap_s < options.urgent_s) for each in hungry)
    if urgent:  # its first frames come before the tenth second of a comfortable one, and before any file
        hungry = [
            each for each in hungry if each.live and (not each.heard or each.slack_s + each.gap_s < options.comfort_s)
        ]
    # Live before files; a session not heard yet before one with the same slack.
    hungry.sort(key=lambda each: (not each.live, each.slack_s + each.gap_s, each.heard, each.key))
    return [each.key for each in hungry[: options.max_batch]]


def most_frames(slack_s: float, played_s: float, frame_s: float, pace: float) -> int:
    """The largest chunk that is there well before ``slack_s`` of buffered audio has played, within bounds.

    Args:
        played_s: audio of this playback so far.
        frame_s: audio of a frame.
        pace: seconds that a second of its audio takes now, everybody's work in it.
    """
    if slack_s <= 0:
        return LATE
    most = slack_s / (frame_s * max(pace, 1e-3) * MARGIN)
    least = 1 if played_s < YOUNG_S else 2
    return max([least, *(frames for frames in SIZES if frames <= most)])


def decode_now(due: Sequence[Standing], others: int) -> bool:
    """Whether the chunks that are ``due`` are decoded, or wait until the ``others`` of the round have theirs."""
    pressing = any(each.live and (not each.heard or each.slack_s < HOLD_S) for each in due)
    return pressing or len(due) >= others


@dataclass(frozen=True, slots=True)
class RoundCosts:
    """What the parts of a round cost, and what its drafts bring."""

    target: LinearCost  # a pass, by rows
    draft: LinearCost  # a draft of every session: a pass of the drafter, by sessions
    step: LinearCost  # what a session's round costs beside the passes, by its drafts
    acceptance: Acceptance

    def of(self, sessions: int, gamma: int) -> float:
        """Seconds of a round of ``sessions``, each with at most ``gamma`` drafts."""
        drafts = self.acceptance.drafts(gamma)
        passes = self.target.of(sessions * (drafts + 1)) + drafts * self.draft.of(sessions)
        return passes + sessions * self.step.of(drafts)

    def goodput(self, sessions: int, gamma: int) -> float:
        """Tokens a second of each of ``sessions``."""
        return self.acceptance.tokens(gamma) / self.of(sessions, gamma)

    def best_gamma(self, sessions: int, most: int) -> int:
        """Drafts a session (1 to ``most``) that give most tokens a second at this batch; of equals the fewest."""
        return max(
            (gamma for gamma in GAMMAS if gamma <= most), key=lambda gamma: (self.goodput(sessions, gamma), -gamma)
        )

    def pays(self, sessions: int, gamma: int) -> bool:
        """Whether so many drafts give at least ``WORTH`` times the tokens of none."""
        return self.goodput(sessions, gamma) > WORTH * self.goodput(sessions, 0)

    def load(self, sessions: int, gamma: int, tokens_per_s: float, codec_share: float) -> float:
        """Share of the engine's time that ``sessions`` live sessions need.

        Args:
            tokens_per_s: tokens of one second of audio.
            codec_share: seconds of the codec for a second of audio of one session.
        """
        rounds_per_s = tokens_per_s / self.acceptance.tokens(gamma)
        return rounds_per_s * self.of(sessions, gamma) + sessions * codec_share
