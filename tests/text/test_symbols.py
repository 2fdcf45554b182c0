"""The symbol table is part of the weights: its order is pinned here."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files

import pytest

from tts_spec.text.symbols import PAD, SYMBOLS, is_symbol, symbol_ids
from tts_spec.types import SpeechError


def test_the_order_never_changes() -> None:
    """Trained weights are indexed by it. If this fails, put the symbols back, do not update the hash."""
    digest = hashlib.sha256("".join(SYMBOLS).encode()).hexdigest()
    assert digest == "c85e533e7d995bc16803dc9e89caf1709829e09bebcef3eae6abb8342de9832d"
    assert len(SYMBOLS) == 115


def test_one_character_each_and_no_double() -> None:
    assert all(len(symbol) == 1 for symbol in SYMBOLS)
    assert len(set(SYMBOLS)) == len(SYMBOLS)


def test_it_is_the_vocabulary_of_the_teacher_in_its_order() -> None:
    vocabulary = json.loads((files("hibari") / "assets" / "vocab.json").read_text(encoding="utf-8"))
    assert list(SYMBOLS[1:]) == sorted(vocabulary, key=vocabulary.__getitem__)


def test_ids() -> None:
    assert symbol_ids(SYMBOLS[1:]) == list(range(1, len(SYMBOLS)))
    assert [SYMBOLS[i] for i in symbol_ids("həlˈO ðˈɛɹ.")] == list("həlˈO ðˈɛɹ.")
    assert symbol_ids("") == []


@pytest.mark.parametrize("bad", ["$", "g", "7", "", "ab", "中"])
def test_unknown_symbols_are_errors_that_name_them(bad: str) -> None:
    assert not is_symbol(bad)
    with pytest.raises(SpeechError, match="position 1") as caught:
        symbol_ids(["a", bad])
    assert caught.value.code == "unknown_symbol"
    assert repr(bad) in caught.value.message


def test_pad_is_no_phoneme() -> None:
    assert PAD == 0
    assert not is_symbol(SYMBOLS[PAD])
