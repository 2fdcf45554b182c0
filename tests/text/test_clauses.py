"""The clause splitter: where clauses end, and that cutting the input differently changes nothing."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_spec.text.clauses import Clause, ClauseSplitter
from tts_spec.types import SpeechError

PARTS = [
    *"abI5.,;:!?…—–-\n \"'”)(<>/*",
    "  ",
    "\n\n",
    "...",
    " Dr. ",
    " e.g. ",
    " U.S. The ",
    " J. R. R. ",
    "3.14",
    "1,000",
    "10:30 a.m. ",
    " No. 5 ",
    '<break time="1.5s"/>',
    "<b",
    "https://a.com/x?y=1. ",
    "a word, and another word; ",
    "。",
    "😀\u200d",
    "é",
    "word" * 30,
]
TEXT = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PARTS), max_size=40).map("".join))


def split(text: str, sizes: list[int] | None = None, **limits: int) -> list[Clause]:
    splitter = ClauseSplitter(**limits)
    clauses = []
    at = 0
    for size in sizes or []:
        clauses += splitter.feed(text[at : at + size])
        at += size
    return [*clauses, *splitter.feed(text[at:]), *splitter.flush()]


def texts(text: str) -> list[str]:
    return [clause.text for clause in split(text)]


@settings(max_examples=300, deadline=None)
@given(TEXT, st.lists(st.integers(0, 9), max_size=80), st.integers(1, 30), st.integers(0, 60))
def test_the_same_text_gives_the_same_clauses(text: str, sizes: list[int], soft: int, more: int) -> None:
    limits = {"min_soft": soft, "max_chars": soft + more}
    whole = split(text, **limits)
    assert split(text, sizes, **limits) == whole
    assert split(text, [1] * len(text), **limits) == whole


@settings(max_examples=300, deadline=None)
@given(TEXT, st.integers(1, 30), st.integers(0, 60))
def test_clauses_and_gaps_give_back_the_text(text: str, soft: int, more: int) -> None:
    at = 0
    for clause in split(text, min_soft=soft, max_chars=soft + more):
        assert text[at : clause.start].strip() == ""
        assert text[clause.start : clause.start + len(clause.text)] == clause.text
        assert clause.text == clause.text.strip() != ""
        at = clause.start + len(clause.text)
    assert text[at:].strip() == ""


def test_a_clause_leaves_as_soon_as_its_end_is_sure() -> None:
    splitter = ClauseSplitter()
    assert splitter.feed("Hello there.") == []  # "there.com" is still possible
    assert splitter.feed(" ") == [Clause("Hello there.", 0, True)]
    assert splitter.feed('"Stop!" ') == []  # he said?
    assert splitter.feed("h") == []
    assert splitter.feed("e said. ") == [Clause('"Stop!" he said.', 13, True)]
    assert splitter.flush() == []


def test_text_after_a_flush_goes_on_counting() -> None:
    splitter = ClauseSplitter()
    assert splitter.feed("Dr. Sm") == []
    assert splitter.flush() == [Clause("Dr. Sm", 0, True)]
    assert splitter.feed("ith. ") == [Clause("ith.", 6, True)]


@pytest.mark.parametrize(
    "sentence",
    [
        "Dr. Smith and Mrs. J. Jones of St. Louis met Prof. Moriarty.",
        "Use a fruit, e.g. an apple, i.e. that one.",
        "It costs 3.14 or $1,000.50 at most.",
        "J. R. R. Tolkien wrote it.",
        "We meet at 10:30 a.m. on Monday.",
        "See https://example.com/a?b=1.5&c=d for more.",
        "Mail me@x.org or visit example.com today.",
        'Wait <break time="1.5s"/> here.',
        "3. Open the door.",
        "The U.S. Army and the U.N. agreed.",
        "She has a Ph.D. in physics, No. 5 in class.",
        "“Really?” he asked.",
        "Well... maybe not.",
        "Version 1.2.3 of Node.js is out.",
    ],
)
def test_one_sentence_stays_whole(sentence: str) -> None:
    assert "".join(texts(sentence + " Next one.")[:-1]).replace(" ", "") == sentence.replace(" ", "")
    assert all(not c.end_of_sentence for c in split(sentence + " Next one.")[:-2])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four… Five", ["One.", "Two!", "Three?", "Four…", "Five"]),
        ("we left. then it rained.", ["we left.", "then it rained."]),
        ("It is in the U.S. It rained.", ["It is in the U.S.", "It rained."]),
        ("We ate apples, etc. Then we left.", ["We ate apples, etc.", "Then we left."]),
        ("No. Never.", ["No.", "Never."]),
        ("He said “Go.” Then he left.", ["He said “Go.”", "Then he left."]),
        ("Really?! Yes.", ["Really?!", "Yes."]),
        ("Title\n\nText that\ngoes on", ["Title", "Text that\ngoes on"]),
        ("To buy:\n- milk\n- bread", ["To buy:", "- milk", "- bread"]),
        ("**Done.** Next", ["**Done.**", "Next"]),
        ("你好。世界", ["你好。", "世界"]),
        ("Yes, sir.", ["Yes, sir."]),
        (
            "When the long summer days were finally over, we went back home.",
            ["When the long summer days were finally over,", "we went back home."],
        ),
        (
            "The big and final meeting is on Tuesday March 4, 2025 in Rome.",
            ["The big and final meeting is on Tuesday March 4, 2025 in Rome."],
        ),
        ("", []),
        (" \n\t ", []),
        ("...", ["..."]),
    ],
)
def test_ends(text: str, expected: list[str]) -> None:
    assert texts(text) == expected


def test_the_length_cap_cuts_at_a_space_else_hard() -> None:
    words = split("alpha beta gamma delta", min_soft=5, max_chars=12)
    assert [c.text for c in words] == ["alpha beta", "gamma delta"]
    assert [c.end_of_sentence for c in words] == [False, True]
    assert [c.text for c in split("a" * 25, min_soft=5, max_chars=10)] == ["a" * 10, "a" * 10, "a" * 5]
    tag = '<break time="500ms"/>'
    assert [c.text for c in split(f"go {tag} on", min_soft=5, max_chars=10)] == ["go", f"{tag}", "on"]


def test_memory_is_bounded() -> None:
    """Nothing the caller may send keeps the splitter from letting text go."""
    for piece in ("a", "! ", "<a", "Dr. ", " ", "\n", "“", "1,", "<b <"):
        splitter = ClauseSplitter()
        for _ in range(3000):
            splitter.feed(piece)
        assert sum(len(c.text) for c in splitter.flush()) < 1000, piece


def test_time_is_linear() -> None:
    """Ten times the text takes about ten times as long, not a hundred."""

    def seconds(n: int) -> float:
        def once() -> float:
            started = time.process_time()
            split("Hello there, my friend. " * n)
            return time.process_time() - started

        return min(once() for _ in range(3))

    assert seconds(10_000) < 40 * max(seconds(1_000), 1e-4)


def test_bad_limits_are_named() -> None:
    with pytest.raises(SpeechError, match="min_soft is 50"):
        ClauseSplitter(min_soft=50, max_chars=40)


@pytest.mark.parametrize(
    ("text", "words", "rest"),
    [
        ("Half a sen", [("Half a", False)], [("sen", False)]),
        ("Hello", [], [("Hello", False)]),
        ("Is that all? Well, yes", [("Well,", False)], [("yes", False)]),
        ("It is 3.", [("It is", False)], [("3.", True)]),
        ('Wait <break time="1', [("Wait", False)], [('<break time="1', False)]),
        ("Trailing off… ", [("Trailing off…", True)], []),
        ("   ", [], []),
    ],
)
def test_what_is_held_back_can_be_had_by_whole_words_or_all_of_it(
    text: str, words: list[tuple[str, bool]], rest: list[tuple[str, bool]]
) -> None:
    splitter = ClauseSplitter()
    splitter.feed(text)
    assert splitter.holds == bool(words or rest)
    assert [(c.text, c.end_of_sentence) for c in splitter.release(whole=False)] == words
    assert splitter.holds == bool(rest)
    assert [(c.text, c.end_of_sentence) for c in splitter.release(whole=True)] == rest
    assert not splitter.holds


@given(st.text(alphabet="ab .,?\n<>", max_size=60), st.integers(0, 60), st.booleans())
@settings(deadline=None, max_examples=200)
def test_releasing_early_loses_and_repeats_nothing(text: str, at: int, whole: bool) -> None:
    splitter = ClauseSplitter()
    clauses = [
        *splitter.feed(text[:at]), *splitter.release(whole), *splitter.feed(text[at:]), *splitter.flush(),
    ]  # fmt: skip
    assert "".join("".join(c.text.split()) for c in clauses) == "".join(text.split())
    assert all(text[c.start : c.start + len(c.text)] == c.text for c in clauses)
