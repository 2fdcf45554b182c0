"""Pronunciations written into the text: aliases and phonemes, tied to the words they stand for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.test_frontend import symbols as joined
from tts_spec.text.frontend import Frontend
from tts_spec.text.lexicon import read_lexicon
from tts_spec.text.pronunciation import from_arpabet, from_ipa
from tts_spec.types import SpeechError


@pytest.fixture(scope="module")
def frontend() -> Frontend:
    return Frontend()


@pytest.mark.parametrize(
    ("ipa", "symbols"),
    [
        ("təˈmeɪtoʊ", "təmˈAtO"),
        ("ˈdʒɪdʒə", "ʤˈɪʤə"),
        ("tʃɝtʃ", "ʧɜɹʧ"),
        ("/ˈrɛ.kɚd/", "ɹˈɛkəɹd"),
        ("ˌkjubɚˈnɛtiz", "kjˌubəɹnˈɛtiz"),
        ("ɡoʊ", "ɡO"),
    ],
)
def test_ipa(ipa: str, symbols: str) -> None:
    assert from_ipa(ipa) == symbols


@pytest.mark.parametrize(
    ("arpabet", "symbols"),
    [("T AH0 M EY1 T OW2", "təmˈAtˌO"), ("JH IH1 F", "ʤˈɪf"), ("B ER1 D", "bˈɜɹd"), ("W AO1 T ER0", "wˈɔtəɹ")],
)
def test_arpabet(arpabet: str, symbols: str) -> None:
    assert from_arpabet(arpabet) == symbols


def test_phonemes_are_spoken_for_the_word_they_enclose(frontend: Frontend) -> None:
    text = 'The <phoneme alphabet="ipa" ph="ˈʒɪf">GIF</phoneme>, here.'
    utterance = frontend.phonemize(text, 0)
    assert "ʒˈɪf, h" in joined(utterance)
    assert [word.text for word in utterance.words] == ["The", "GIF", "here"]
    assert all(text[word.start_char : word.end_char] == word.text for word in utterance.words)
    assert utterance.warnings == ()


def test_the_sentence_still_ends_after_phonemes(frontend: Frontend) -> None:
    assert joined(frontend.phonemize("Say <phoneme ph='tə\u02c8meɪtoʊ'>tomato</phoneme>.", 0)).endswith("təmˈAtO.")


def test_an_alias_is_read_instead_and_belongs_to_what_was_written(frontend: Frontend) -> None:
    text = 'The <sub alias="World Wide Web Consortium">W3C</sub> met.'
    utterance = frontend.phonemize(text, 10)
    assert "wˈɜɹld wˈId wˈɛb" in joined(utterance)
    assert [word.text for word in utterance.words] == ["The", "W3C", "met"]
    assert text[utterance.words[1].start_char - 10 : utterance.words[1].end_char - 10] == "W3C"
    assert utterance.warnings == ()


@pytest.mark.parametrize(
    "element",
    ['<phoneme ph="çüß">word</phoneme>', "<phoneme>word</phoneme>", '<phoneme ph="">word</phoneme>', '<phoneme ph="nnn">word</phoneme>'],
)  # fmt: skip
def test_phonemes_the_voices_do_not_have_are_named_and_the_word_is_read_as_written(
    frontend: Frontend, element: str
) -> None:
    utterance = frontend.phonemize(f"One {element} more.", 0)
    assert joined(utterance) == joined(frontend.phonemize("One word more.", 0))
    (warning,) = utterance.warnings
    assert warning.code == "invalid_phonemes"
    assert (warning.start, warning.end) == (4, 4 + element.index(">") + 1)
    assert [word.text for word in utterance.words] == ["One", "word", "more"]


PARTS = [
    '<phoneme ph="ɡˈoʊ">', "</phoneme>", '<sub alias="go">', "</sub>", "<break/>", "word ", ", ", ". ", "<", '<phoneme ph="',
]  # fmt: skip


@given(st.lists(st.sampled_from(PARTS), max_size=8))
@settings(deadline=None, max_examples=150)
def test_any_mixture_is_spoken_or_named(parts: list[str]) -> None:
    text = "".join(parts)
    utterance = Frontend().phonemize(text, 0)
    for word in utterance.words:
        assert text[word.start_char : word.end_char] == word.text
    assert all(phoneme.word is None or phoneme.word < len(utterance.words) for phoneme in utterance.phonemes)


LEXICON = {"kubernetes": "koober nettees", "GIF": "/ˈʒɪf/", "tts-spec": "T T S spec"}


@pytest.mark.parametrize("text", ["Run Kubernetes now.", "Run kubernetes now.", "KUBERNETES"])
def test_a_lexicon_reads_a_word_however_it_is_written(text: str) -> None:
    utterance = Frontend(LEXICON).phonemize(text, 0)
    said = joined(Frontend().phonemize("koober nettees", 0))
    assert said[:6] in joined(utterance)
    assert [word.text for word in utterance.words if "ubernetes" in word.text.lower()] == [
        text.split()[-2 if " " in text else 0]
    ]


def test_a_lexicon_entry_with_capitals_is_for_itself_only_and_phonemes_are_spoken() -> None:
    utterance = Frontend(LEXICON).phonemize("A GIF, a gif.", 0)
    assert joined(utterance).count("ʒˈɪf") == 1
    assert "ʒˈɪf, " in joined(utterance)
    assert [word.text for word in utterance.words] == ["A", "GIF", "a", "gif"]


def test_a_lexicon_finds_whole_words_outside_tags() -> None:
    frontend = Frontend(LEXICON)
    assert "ʒˈɪf" not in joined(frontend.phonemize('GIFs <x-GIF a="GIF"/> and <sub alias="jiff">GIF</sub>.', 0))
    assert [word.text for word in frontend.phonemize("I use tts-spec.", 0).words] == ["I", "use", "tts-spec"]


@pytest.mark.parametrize("entries", [{"a": ""}, {"a": 3}, {"<a>": "b"}, {"...": "b"}, {"a": "/çü/"}])
def test_bad_entries_are_named(entries: dict[str, str]) -> None:
    with pytest.raises(SpeechError) as caught:
        Frontend(entries)
    assert caught.value.field == "lexicon"
    assert repr(next(iter(entries))) in caught.value.message


def test_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tts-spec.toml"
    file.write_text('[server]\nport = 1\n[lexicon]\nGIF = "/ʤɪf/"\n', encoding="utf-8")
    assert read_lexicon(file) == {"GIF": "/ʤɪf/"}
    assert read_lexicon(None) == {}
    for bad in ("[lexicon", "lexicon = 3", "[lexicon]\na = 3"):
        file.write_text(bad)
        with pytest.raises(SpeechError):
            read_lexicon(file)
