"""Normalising and counting errors; Whisper itself is tested in test_report.py."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.evaluation.transcribe import Errors, cer, normalise, wer

WORDS = st.lists(st.sampled_from(["cat", "dog", "runs", "blue", "7", "house"]), max_size=8)


@pytest.mark.parametrize(
    ("written", "heard"),
    [
        ("I can't organise it.", "i cannot organize it"),
        ("It costs twenty five dollars", "It costs $25."),
        ("There are 1,804 people.", "there are one thousand eight hundred four people"),
        ("At 5 p.m. in the U.S.", "at 5pm in the US"),
        ("Your code is 5 5 5.", "Your code is 555."),
        ("SQLite (it is off).", "SQLite. It is off."),
        ("Mr. Smith won't go - ever!", "mister smith will not go ever"),
        ("3.5 percent", "three point five percent"),
    ],
)
def test_the_same_speech_written_differently_has_no_errors(written: str, heard: str) -> None:
    assert normalise(written) == normalise(heard)
    assert wer(written, heard).errors == 0
    assert cer(written, heard).errors == 0


def test_different_words_stay_different() -> None:
    assert wer("The cat sat on the mat.", "The cat sat on a mat today") == Errors(1, 0, 1, 6)
    assert wer("The cat sat.", "") == Errors(0, 3, 0, 3)
    assert wer("", "the cat") == Errors(0, 0, 2, 0)
    assert cer("cat", "cut") == Errors(1, 0, 0, 3)
    assert wer("1917", "1918").errors == 1


@settings(deadline=None, max_examples=60)
@given(WORDS, WORDS)
def test_counts_add_up(reference: list[str], hypothesis: list[str]) -> None:
    errors = wer(" ".join(reference), " ".join(hypothesis))
    length, heard = (len(normalise(" ".join(words)).split()) for words in (reference, hypothesis))
    assert errors.length == length
    assert length - errors.deletions + errors.insertions == heard
    assert abs(length - heard) <= errors.errors <= max(length, heard)
    back = wer(" ".join(hypothesis), " ".join(reference))
    assert errors.errors == back.errors


def test_errors_are_summed_before_they_are_divided() -> None:
    assert (Errors(1, 0, 0, 3) + Errors(0, 2, 1, 7)).rate == 0.4
    assert Errors(0, 0, 2, 0).rate == 2
