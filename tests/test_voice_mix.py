"""Names of voices and mixes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_spec.types import SpeechError
from tts_spec.voice_mix import mix_name, mixed, voice_weights

NAMES = ("heart", "michael", "emma")


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("heart", {"heart": 1.0}),
        ("heart(3)", {"heart": 1.0}),
        ("heart+michael", {"heart": 0.5, "michael": 0.5}),
        ("heart(3)+michael(1)", {"heart": 0.75, "michael": 0.25}),
        (" heart (1.5) + michael( .5 ) ", {"heart": 0.75, "michael": 0.25}),
        ("heart+michael(2)+heart", {"heart": 0.5, "michael": 0.5}),
    ],
)
def test_shares(text: str, shares: dict[str, float]) -> None:
    assert voice_weights(text, NAMES) == shares


def test_a_bundle_may_call_a_voice_whatever_it_likes() -> None:
    assert voice_weights("rock+roll(live)", ("rock+roll(live)",)) == {"rock+roll(live)": 1.0}


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("heart(2)+nobody(1)", "unknown_voice", "voice is 'nobody'; allowed: heart, michael, emma, or a mix"),
        ("heart(0)", "invalid_value", "the weight '0'; allowed: a number above 0, up to 100"),
        ("heart(-1)+emma", "invalid_value", "the weight '-1'"),
        ("heart(nan)+emma", "invalid_value", "the weight 'nan'"),
        ("heart(1e9)+emma", "invalid_value", "the weight '1e9'"),
        ("heart()+emma", "invalid_value", "the weight ''"),
        ("heart(2", "invalid_value", "voice is 'heart(2'; allowed: a name, or names with weights"),
        ("heart++emma", "invalid_value", "allowed: a name, or names with weights"),
        ("", "invalid_value", "voice is ''"),
        ("heart(2)emma", "invalid_value", "voice is 'heart(2)emma'"),
    ],
)
def test_what_is_no_mix_is_refused(text: str, code: str, says: str) -> None:
    with pytest.raises(SpeechError) as caught:
        voice_weights(text, NAMES)
    assert (caught.value.code, caught.value.field) == (code, "voice")
    assert says in caught.value.message


@given(st.dictionaries(st.sampled_from(NAMES), st.floats(0.001, 100), min_size=1))
def test_a_name_reads_back(weights: dict[str, float]) -> None:
    read = mixed(mix_name(weights), str)
    assert list(read) == list(weights)
    if len(weights) > 1:
        assert list(read.values()) == pytest.approx(list(weights.values()), rel=1e-14)


def test_a_long_name_is_refused_without_backtracking() -> None:
    """A pattern with two greedy parts would need minutes here."""
    for text in (" " * 60_000 + "(", "(" * 60_000, "heart" + " " * 60_000 + "(1)x"):
        with pytest.raises(SpeechError):
            voice_weights(text, NAMES)
