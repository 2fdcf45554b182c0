"""Phonemes, their words in the caller's text, pauses and warnings."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_spec.text.frontend import Frontend
from tts_spec.text.phonemes import PUNCTUATION, Utterance
from tts_spec.text.symbols import is_symbol

CORPUS = json.loads((Path(__file__).parent / "data" / "corpus_phonemes.json").read_text(encoding="utf-8"))

# Six sentences of a survey of front ends: the phonemes hibari gives, corrected where it is wrong.
GOLDEN = [
    (
        "Dr. Smith paid $1,234.50 on 3/4/2025 at 10:30 AM.",
        "dˈɑktəɹ smˈɪθ pˈAd wˈʌn θˈWzᵊnd tˈu hˈʌndɹəd θˈɜɹTi fˈɔɹ dˈɑləɹz ænd fˈɪfti sˈɛnts ˌɔn mˈɑɹʧ fˈɔɹθ, "
        "twˈɛnti twˈɛnti fˈIv æt tˈɛn θˈɜɹTi ˌAˈɛm.",
    ),
    (
        "I read the book that you read yesterday; the wind will wind the clock.",
        "ˌI ɹˈɛd ðə bˈʊk ðæt ju ɹˈɛd jˈɛstəɹdˌA; ðə wˈɪnd wɪl wˈInd ðə klˈɑk.",
    ),
    (
        "NASA's GPUs hit 98.6% — visit https://example.com/a?b=1 or e-mail me@x.org!",
        "nˈæsəz ʤˌipˌijˈuz hˈɪt nˈIndi ˈAt pYnt sˈɪks pəɹsˈɛnt — vˈɪzət ɪɡzˈæmpəl dˈɑt kˈɑm slˈæʃ ˈA kwˈɛsʧᵊn mˈɑɹk "
        "bˈi ˈikwᵊlz wˈʌn ɔɹ ˈimˌAl mˌi æt ˈɛks dˈɑt ˈɔɹɡ!",
    ),
    (
        "It's 5°C in St. John's, 12km away; call 555-0199.",
        "ˌɪts fˈIv dəɡɹˈiz sˈɛlsiəs ɪn sˈAnt ʤˈɑnz, twˈɛlv kəlˈɑməTəɹz əwˈA; "
        "kˈɔl fˈIv fˈIv fˈIv, zˈɪɹO wˈʌn nˈIn nˈIn.",
    ),
    ("naïve café résumé 你好 😀", "nIˈiv kæfˈA ɹˌAsumˈA"),
    ("xylitol Kubernetes PyTorch GIF SQL", "zˈIlətɔl kjˈubəɹnˌits pˈI tˈɔɹʧ ɡˈɪf sˈikwəl"),
]


@pytest.fixture(scope="module")
def frontend() -> Frontend:
    frontend = Frontend()
    frontend.load()
    frontend.load(british=True)
    return frontend


def symbols(utterance: Utterance) -> str:
    return "".join(p.symbol for p in utterance.phonemes)


def spoken_words(utterance: Utterance) -> dict[str, str]:
    """Phonemes of each word, by its text."""
    out: dict[str, str] = {}
    for phoneme in utterance.phonemes:
        if phoneme.word is not None:
            text = utterance.words[phoneme.word].text
            out[text] = out.get(text, "") + phoneme.symbol
    return out


@pytest.mark.parametrize(("text", "phonemes"), GOLDEN, ids=[text[:20] for text, _ in GOLDEN])
def test_the_six_sentences(frontend: Frontend, text: str, phonemes: str) -> None:
    assert symbols(frontend.phonemize(text, 0)) == phonemes


@pytest.mark.parametrize("pair", CORPUS, ids=[pair["text"][:20] for pair in CORPUS])
def test_phonemes_are_those_the_teacher_was_given(frontend: Frontend, pair: dict[str, str]) -> None:
    assert symbols(frontend.phonemize(pair["text"], 0, bool(pair["british"]))) == pair["phonemes"]


def test_words_are_the_callers(frontend: Frontend) -> None:
    said = "He said: "
    text = "“Dr. Smith’s” paid $1,234.50 (at 10:30 a.m.) to me@x.org — or USD 5…"
    utterance = frontend.phonemize(text, len(said))
    assert all((said + text)[w.start_char : w.end_char] == w.text for w in utterance.words)
    assert [w.text for w in utterance.words] == [
        *("Dr", "Smith’s", "paid", "$1,234.50", "at", "10:30", "a.m.", "to", "me@x.org", "or", "USD 5"),
    ]
    by_word = spoken_words(utterance)
    assert by_word["$1,234.50"] == "wˈʌn θˈWzᵊnd tˈu hˈʌndɹəd θˈɜɹTi fˈɔɹ dˈɑləɹz ænd fˈɪfti sˈɛnts"
    assert by_word["10:30"] == "tˈɛn θˈɜɹTi"
    assert by_word["a.m."] == "ˌAˈɛm"
    assert by_word["USD 5"] == "fˈIv dˈɑləɹz"


def test_each_digit_of_a_phone_number_belongs_to_its_written_group(frontend: Frontend) -> None:
    by_word = spoken_words(frontend.phonemize("Call (555) 123-4567 now", 0))
    assert by_word["555"] == "fˈIv fˈIv fˈIv"
    assert by_word["123-4567"].startswith("wˈʌn tˈu θɹˈi")


def test_british_rules(frontend: Frontend) -> None:
    assert symbols(frontend.phonemize("Hello there.", 0)) == "həlˈO ðˈɛɹ."
    assert symbols(frontend.phonemize("Hello there.", 0, british=True)) == "həlˈQ ðˈɛː."


@pytest.mark.parametrize("text", ["", "  \n", "...", "—", "…", "?!", '"()"', "***", "- - -", "\u200b\x00"])
def test_nothing_to_say_gives_nothing(frontend: Frontend, text: str) -> None:
    assert frontend.phonemize(text, 3) == Utterance((), (), ())


@pytest.mark.parametrize("text", ["😊", "👨‍👩‍👧 🇫🇷", "你好。", "…😀!", "שלום"])
def test_unspeakable_text_gives_only_warnings(frontend: Frontend, text: str) -> None:
    utterance = frontend.phonemize(text, 3)
    assert utterance.phonemes == utterance.words == ()
    assert {w.code for w in utterance.warnings} == {"unspeakable"}


def test_warnings_name_what_and_where(frontend: Frontend) -> None:
    text = "Hi 😊 from 北京, <b>friend</b> [here](http://x)"
    warnings = frontend.phonemize(text, 10).warnings
    assert [(w.code, text[w.start - 10 : w.end - 10]) for w in warnings] == [
        ("unspeakable", "😊"),
        ("unspeakable", "北京"),
        ("ssml_stripped", "<b>"),
        ("ssml_stripped", "</b>"),
        ("markup_stripped", "](http://x)"),
    ]
    assert "smiling face with smiling eyes" in warnings[0].message
    assert "Han" in warnings[1].message


@pytest.mark.parametrize(
    ("tag", "seconds", "codes"),
    [
        ('<break time="500ms"/>', 0.5, []),
        ("<break time='0.5s' />", 0.5, []),
        ('<break time="2s"></break>', 2.0, ["ssml_stripped"]),
        ('<break time="6s"/><break time="7s"/>', 10.0, []),
        ('<break time="1000s"/>', 10.0, ["pause_capped"]),
        ('<break strength="none"/>', 0.0, []),
        ('<break time="soon"/>', 0.0, ["ssml_stripped"]),
    ],
)
def test_breaks(frontend: Frontend, tag: str, seconds: float, codes: list[str]) -> None:
    utterance = frontend.phonemize(f"Wait {tag} now.", 0)
    assert symbols(utterance) == "wˈAt nˈW."
    assert sum(p.pause_s for p in utterance.phonemes) == pytest.approx(seconds)
    assert all(p.symbol == " " and p.word is None for p in utterance.phonemes if p.pause_s)
    assert [w.code for w in utterance.warnings] == codes


def test_a_break_alone_or_in_front_is_carried_by_a_space(frontend: Frontend) -> None:
    alone = frontend.phonemize('<break time="1s"/>', 0).phonemes
    assert [(p.symbol, p.word, p.pause_s) for p in alone] == [(" ", None, 1.0)]
    front = frontend.phonemize('<break time="1s"/> Hi.', 0).phonemes
    assert [(p.symbol, p.pause_s) for p in front][:2] == [(" ", 1.0), ("h", 0.0)]


def test_a_sentence_that_ends_in_an_abbreviation_still_ends(frontend: Frontend) -> None:
    assert symbols(frontend.phonemize("We met at 9:30 p.m.", 0)).endswith("ˈɛm.")
    assert symbols(frontend.phonemize("Is it in the U.S.?", 0)).endswith("?")


BITS = [
    *"$5 -–—'’“.,!?()[]@é½/²%#*_`|\\°CI٣Ⅳ１‼xЖ北😀\n\x00\u200b\ud800",
    *(
        "3.2",
        "bn",
        "--",
        "<break time='1s'/>",
        "<b>",
        "](x)",
        "a@b.co",
        "http://x.y/z?q=1",
        "👨‍👩‍👧",
        "e\u0301",
        "&amp;",
    ),
    *("AM", "10:30", "March", "4", "km", "the", "Dr.", "U.S.", "[a](/ˈA/)", "555-0199", "+1 555 123 4567"),
]


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(st.text(max_size=30), st.lists(st.sampled_from(BITS), max_size=14).map("".join)),
    st.integers(0, 9),
    st.booleans(),
)
def test_any_text_is_spoken_or_named(text: str, offset: int, british: bool) -> None:
    utterance = Frontend().phonemize(text, offset, british)
    assert all(text[w.start_char - offset : w.end_char - offset] == w.text for w in utterance.words)
    assert all(offset <= w.start < w.end <= offset + len(text) for w in utterance.warnings)
    assert all(is_symbol(p.symbol) for p in utterance.phonemes)
    words = [p.word for p in utterance.phonemes if p.word is not None]
    assert words == sorted(words)
    assert set(words) == set(range(len(utterance.words)))
    assert all(p.word is not None for p in utterance.phonemes if p.symbol not in PUNCTUATION)
    named = [(w.start_char, w.end_char) for w in utterance.words] + [(w.start, w.end) for w in utterance.warnings]
    tag = "<break time='1s'/>"
    covered = set().union(*(range(a - offset, b - offset) for a, b in named)) if named else set()
    for i, char in enumerate(text):
        if char.isascii() and char.isalnum() and tag not in text:
            assert i in covered, (char, i)


@pytest.mark.parametrize(
    "piece", ["1", "1,", "1.", "a", "A", "$", "(", "<", "😀", "1-", "a.", "[x", "'", "1/2 ", "@a", "-"]
)
def test_a_clause_of_one_thing_repeated_is_quick(frontend: Frontend, piece: str) -> None:
    """The longest clause the splitter gives, filled with what hibari or a pattern might choke on."""
    text = (piece * 400)[:400]
    started = time.process_time()
    frontend.phonemize(text, 0)
    assert time.process_time() - started < 5


def test_an_ordinary_clause_is_quick(frontend: Frontend) -> None:
    clauses = [f"The old man number {i} went down to the river to fish," for i in range(40)]
    started = time.process_time()
    for clause in clauses:
        frontend.phonemize(clause, 0)
    assert (time.process_time() - started) / len(clauses) < 0.03
