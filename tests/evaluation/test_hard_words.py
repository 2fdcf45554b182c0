"""The list of hard sentences: the front end says each as it should be heard; and what is missing in a transcript is found."""

from __future__ import annotations

from collections import Counter

import pytest

from models.evaluation.hard_words import HardSentence, aligned, front_end_fault, hard_sentences, listen, sounds
from tts_spec.text.frontend import Frontend

KINDS = {
    "heteronym", "abbreviation", "unit", "money", "date", "time", "phone", "code", "address", "code word", "number", "name",
    "repeated", "letters", "twister", "short", "long", "punctuation",
}  # fmt: skip


@pytest.fixture(scope="module")
def frontend() -> Frontend:
    return Frontend()


def test_the_list_is_long_and_of_every_kind() -> None:
    sentences = hard_sentences()
    assert len({each.text for each in sentences}) == len(sentences) >= 150
    counts = Counter(each.kind for each in sentences)
    assert set(counts) == KINDS
    assert min(counts.values()) >= 5
    assert all(len(each.text.split()) >= 40 for each in sentences if each.kind == "long")


@pytest.mark.parametrize("sentence", hard_sentences(), ids=[each.text[:30] for each in hard_sentences()])
def test_the_front_end_says_it_whole_and_in_order(frontend: Frontend, sentence: HardSentence) -> None:
    assert front_end_fault(frontend, sentence) is None


@pytest.mark.parametrize(
    ("text", "heard", "fault"),
    [
        ("It costs $5.", "It costs five.", "says ɪt"),
        ("Hello 你好.", "Hello.", "leaves out '你好'"),
    ],
)
def test_a_fault_of_the_front_end_is_found(frontend: Frontend, text: str, heard: str, fault: str) -> None:
    found = front_end_fault(frontend, HardSentence("x", text, heard))
    assert found is not None
    assert found.startswith(fault)


def heard(frontend: Frontend, text: str, transcript: str) -> tuple[list[str], list[str], list[tuple[str, str]]]:
    found = listen(frontend, HardSentence("x", text, text), transcript)
    return found.missing, found.extra, found.other


@pytest.mark.parametrize(
    ("text", "transcript"),
    [
        ("It costs $4.99.", "It costs four dollars and 99 cents."),
        ("She sells seashells by the seashore.", "She sells sea shells by the sea shore."),
        ("My name is Nguyen.", "My name is Win."),
        ("No no no no, please.", "No, no, no, no! Please!"),
        ("Your PIN is 4821.", "Your pin is 4 8 2 1."),
        ("I scream for ice cream.", "Ice cream for I scream."),
    ],
)
def test_spelling_and_joined_words_make_no_difference(frontend: Frontend, text: str, transcript: str) -> None:
    assert heard(frontend, text, transcript) == ([], [], [])


def test_lost_repeated_and_changed_words_are_found(frontend: Frontend) -> None:
    assert heard(frontend, "No no no no, please.", "No, no, no, please.") == (["nO"], [], [])
    assert heard(frontend, "No no no no.", "No no no no no no.") == ([], ["nO", "nO"], [])
    assert heard(frontend, "The cat sat on the mat.", "The cat on the mat.")[0] == ["sæt"]
    missing, extra, _ = heard(frontend, "He left before dinner.", "Before dinner he left.")
    assert missing or extra  # out of order
    assert heard(frontend, "The cat sat.", "The penguin sat.") == ([], [], [("kæt", "pɛŋɡwᵊn")])
    assert heard(frontend, "Stop!", "") == (["stɑp"], [], [])
    assert aligned([], []).whole
    assert sounds(frontend, "Wait, what?") == ["wAt", "wʌt"]
