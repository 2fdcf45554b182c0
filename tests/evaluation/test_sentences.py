"""Kinds of sentences."""

from __future__ import annotations

import pytest

from models.evaluation.sentences import held_out_sentences, kinds


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("He was a stern yet fair master.", {"plain"}),
        ("In 1917, Maria moved to the airport.", {"names", "numbers"}),
        ("Do I know?", {"question", "short"}),
        ("What a lamp!", {"exclamation", "short"}),
        ("word " * 18, {"long"}),
    ],
)
def test_kinds(sentence: str, found: set[str]) -> None:
    assert set(kinds(sentence)) == found


def test_every_kind_is_held_out() -> None:
    assert {kind for sentence in held_out_sentences() for kind in kinds(sentence)} == {
        *("names", "numbers", "question", "exclamation", "short", "long", "plain"),
    }
