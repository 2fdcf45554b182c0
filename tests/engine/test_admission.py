"""Who may come in and when to ask again, on numbers alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_spec.engine.admission import Stay, keeps_budgets
from tts_spec.engine.scheduler import RAMP, SIZES, Standing, decode_now, most_frames


class Linear:
    """Every session needs a tenth of the engine, and 20 ms to be heard first."""

    def load(self, sessions: int) -> float:
        return 0.1 * sessions

    def first_audio_s(self, sessions: int) -> float:
        return 0.02 * sessions


def test_c24_as_many_as_there_is_time_for() -> None:
    assert [keeps_budgets(Linear(), live, [], 0.15, 0.85) for live in range(10)] == [True] * 8 + [False] * 2


def test_the_first_audio_of_all_must_be_in_time() -> None:
    assert keeps_budgets(Linear(), 1, [0.1] * 4, 0.15, 1.0)  # five begin: 100 ms
    assert not keeps_budgets(Linear(), 1, [0.1] * 5, 0.15, 1.0)  # six would need 120
    assert not keeps_budgets(Linear(), 1, [0.15, 0.03], 0.15, 1.0)  # one has only 30 ms left
    assert not keeps_budgets(Linear(), 1, [], 0.01, 1.0)  # the newcomer asks for what cannot be


def test_c23_a_lone_session_is_served_even_on_a_machine_that_is_too_slow() -> None:
    class Slow(Linear):
        def load(self, sessions: int) -> float:
            return 2.0 * sessions

    assert keeps_budgets(Slow(), 0, [], 0.15, 0.85)
    assert not keeps_budgets(Slow(), 1, [], 0.15, 0.85)


@given(st.integers(0, 20), st.lists(st.floats(-1, 1), max_size=10), st.floats(0.01, 1))
def test_one_more_never_makes_room(live: int, waiting: list[float], budget: float) -> None:
    if keeps_budgets(Linear(), live + 1, waiting, budget, 0.85):
        assert keeps_budgets(Linear(), live, waiting, budget, 0.85)
        assert keeps_budgets(Linear(), live + 1, waiting[1:], budget, 0.85)


def test_when_to_ask_again_follows_how_long_sessions_stay() -> None:
    stay = Stay(prior_s=8.0)
    assert stay.retry_after_ms(admitted=8, ahead=0) == 1000
    assert stay.retry_after_ms(admitted=8, ahead=3) == 4000
    assert stay.retry_after_ms(admitted=8, ahead=1000) == 30_000
    for _ in range(100):
        stay.observe(0.4)
    assert stay.retry_after_ms(admitted=8, ahead=0) == 200


def test_a_chunk_may_grow_with_slack_and_shrinks_with_load() -> None:
    sizes = [most_frames(slack / 100, 1.0, 0.025, 0.5) for slack in range(1, 300)]
    assert sizes == sorted(sizes)
    assert set(sizes) == set(SIZES) - {1}
    assert most_frames(0.15, 1.0, 0.025, 0.2) > most_frames(0.15, 1.0, 0.025, 0.9)
    assert most_frames(-1.0, 1.0, 0.025, 0.5) > most_frames(
        0.001, 1.0, 0.025, 0.5
    )  # too late already: catch up with less work


@given(st.floats(0.001, 3), st.floats(0.01, 1.0))
def test_c19_every_chunk_is_there_before_the_last_has_played(slack_s: float, pace: float) -> None:
    """A chunk takes less time than there is audio for; only the smallest may not."""
    for played_s, least in ((0.1, 1), (1.0, 2)):
        frames = most_frames(slack_s, played_s, 0.025, pace)
        assert frames == least or frames * 0.025 * pace < slack_s


@pytest.mark.parametrize("pace", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_c19_the_ramp_has_no_gap_from_the_first_frame_on(pace: float) -> None:
    lead = 0.025  # one frame was just given
    sizes = [1]
    for count in range(1, 100):
        frames = min(most_frames(lead, sum(sizes) * 0.025, 0.025, pace), RAMP[min(count, len(RAMP) - 1)])
        sizes.append(frames)
        lead -= frames * 0.025 * pace
        assert lead >= 0
        lead += frames * 0.025
    assert max(sizes) == RAMP[-1]
    assert pace > 0.5 or sizes[: len(RAMP)] == list(RAMP)


def test_chunks_of_the_comfortable_wait_for_each_other_and_nobody_else() -> None:
    comfortable, short, new = Standing(1, True, 2.0), Standing(2, True, 0.3), Standing(3, False, 0.1)
    assert not decode_now([comfortable], 3)
    assert decode_now([comfortable, comfortable], 2)
    assert decode_now([comfortable, short], 6)
    assert decode_now([new], 6)
    assert decode_now([comfortable], 0)
    file = Standing(4, True, -9.0, live=False)
    assert not decode_now([file], 3)
    assert decode_now([file], 1)
