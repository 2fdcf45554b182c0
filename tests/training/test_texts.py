"""Sentences for the corpus: what each source yields, what is left out, what is held out."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from models.evaluation.sentences import held_out_sentences
from models.training.composed import composed_sentences
from models.training.texts import (
    addresses,
    documentation,
    is_held_out,
    speakable,
    split_sentences,
    wordnet_definitions,
    wordnet_examples,
)

GLOSS = (
    '00001740 29 v 01 breathe 0 000 | draw air into the lungs; "I can breathe better now"; "the patient is respiring"\n'
)
NOUN = '00001740 29 n 01 box 0 000 | a paper (or card) box in which cereals are sold; "he opened the box"\n'


def test_sentences_are_split_after_their_end_only() -> None:
    text = "Mr. Smith paid $3.50 to Dr. Jones. Did he?  Yes! He lives on St. James Road."
    assert list(split_sentences(text)) == [
        "Mr. Smith paid $3.50 to Dr. Jones.",
        "Did he?",
        "Yes!",
        "He lives on St. James Road.",
    ]


@settings(deadline=None, max_examples=100)
@given(st.text(alphabet='abAB .!?"\n', max_size=80))
def test_splitting_loses_no_letter(text: str) -> None:
    joined = "".join(split_sentences(text))
    assert [c for c in joined if c.isalpha()] == [c for c in text if c.isalpha()]


def test_wordnet(tmp_path: Path) -> None:
    (tmp_path / "data.verb").write_text(GLOSS)
    (tmp_path / "data.noun").write_text("  1 This software and database is licensed\n" + NOUN)
    assert list(wordnet_examples(tmp_path)) == [
        "He opened the box.",
        "I can breathe better now.",
        "The patient is respiring.",
    ]
    assert list(wordnet_definitions(tmp_path)) == ["A paper box in which cereals are sold."]


def test_addresses_since_1945(tmp_path: Path) -> None:
    (tmp_path / "1900_someone.txt").write_text("Fellow citizens of the Senate.")
    (tmp_path / "2016_someone.txt").write_text("I have been there. [Laughter] Thank you all.")
    assert list(addresses(tmp_path)) == ["I have been there.", "Thank you all."]


def test_documentation_has_no_code(tmp_path: Path) -> None:
    page = "<h1>Title</h1><p>Use <code>SELECT</code> here. It is\nquick.<pre>SELECT 1;</pre><p>A &lt; B is so.</p>after"
    (tmp_path / "page.html").write_text(page)
    assert list(documentation(tmp_path)) == ["Use SELECT here.", "It is quick.", "A < B is so."]


def test_speakable_drops_code_duplicates_and_odd_lengths() -> None:
    good = "The book is on the table."
    bad = [
        "Too short.",
        "The sqlite3_open() call opens it.",
        "no capital letter here.",
        "A (half open sentence.",
        "word " * 30,
    ]
    assert list(speakable([good, *bad, "The book, is on the table!"])) == [good]


def test_held_out_sentences_stay_out_however_they_are_written() -> None:
    listed = held_out_sentences()
    assert len(listed) == 500
    assert all(is_held_out(sentence.upper() + " ") for sentence in listed)
    share = sum(map(is_held_out, composed_sentences(3000, seed=1))) / 3000
    assert 0.01 < share < 0.04


def test_composed_sentences_are_different_and_repeatable() -> None:
    made = composed_sentences(2000, seed=3)
    assert len(set(made)) == 2000
    assert made == composed_sentences(2000, seed=3)
    assert made != composed_sentences(2000, seed=4)
    assert "Yes." in made
    assert not [sentence for sentence in made if "{" in sentence or " a old" in sentence or " a umbrella" in sentence]
