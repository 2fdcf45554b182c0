"""The tracked normalisation must say what hibari's own says, and know where each word came from."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.test_readings import READINGS
from tts_spec.text import g2p
from tts_spec.text.normalize import normalize
from tts_spec.text.tracked import TrackedText

hibari_normalize = import_module("hibari.g2p.normalize").normalize


@pytest.mark.parametrize("text", [text for text, _ in READINGS])
def test_equals_hibari(text: str) -> None:
    assert normalize(TrackedText(text)).text == hibari_normalize(text)


PIECES = [
    *"$£€¥¢°%#+=<>~|*^_-–/ .,'’½²",
    "5",
    "12",
    "2024",
    " km",
    "March ",
    "St. ",
    "Dr. ",
    "10:30",
    " AM",
    "Henry ",
    "IV",
]


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.text(max_size=30)))
def test_equals_hibari_on_anything(text: str) -> None:
    assert normalize(TrackedText(text)).text == hibari_normalize(text)


@pytest.mark.parametrize("text", [words for _, words in READINGS])
def test_the_adapter_joins_to_what_hibari_gives(text: str) -> None:
    plain = hibari_normalize(text)
    joined = "".join(token.phonemes + " " * token.space_after for token in g2p.spoken(plain, False)).strip()
    assert joined == g2p.load(False)(text)


def test_every_word_knows_its_source() -> None:
    text = "On March 4, 2025 at 10:30 AM he paid $3.2 billion for 12 km of road"
    normal = normalize(TrackedText(text))
    found = [(m.group(), text[slice(*normal.span(*m.span()))]) for m in re.finditer(r"\S+", normal.text)]
    changed = [(new, old) for new, old in found if new != old]
    assert changed == [
        ("fourth,", "4,"),
        ("ten", "10:30"),
        ("thirty", "10:30"),
        ("A.M.", "AM"),
        ("3.2", "$3.2"),
        ("dollars", "billion"),
        ("kilometers", "km"),
    ]


def test_sub_is_that_of_re_with_a_memory() -> None:
    text = TrackedText("one two  three")
    new = text.sub(re.compile(r"two\s+three"), "2 plus three")
    assert new.text == "one 2 plus three"
    assert [new.span(i, i + 1) for i in (0, 4)] == [(0, 1), (4, 7)]
    assert new.span(6, 10) == (4, 7)  # an inserted word belongs to the word before it
    assert new.span(11, 16) == (9, 14)


def test_nothing_here_needs_torch() -> None:
    code = "import sys, tts_spec.text.frontend, tts_spec.text.clauses; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
