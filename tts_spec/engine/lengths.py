"""How many frames a phoneme lasts at most, by its class and by what follows it: inside a word little, before a pause long.

The table holds one and a half times the 99.9 % quantile of the exact durations of 5,034 utterances at speed 1, frames of 25 ms
(``python -m models.training.lengths PACKED`` makes it again). Their 0.5 % quantile is one frame for every class but before a pause, where
it is two: more than the script's own minimum of one frame would forbid what the teacher says. Knows symbols and frames; knows no stream.
"""

from __future__ import annotations

import math
from enum import Enum

from tts_spec.text.symbols import PAD, START, STOP, SYMBOLS


class Place(Enum):
    """What follows a phoneme."""

    INSIDE = 0  # another sound of its word
    WORD = 1  # a space
    PHRASE = 2  # a mark, the end, or nobody knows yet


CLASSES = {
    "vowel": "AIOQWYaeiouøɐɑɒæɔəɚɛɜɪʊʌᵊᵻɤɨɯœ",
    "stop": "bdkpqtcɖɟɡʈʔɾ",
    "fricative": "fhsvxzʣʥʦʨꭧçðɕɣɸʁʂʃʒʝθχʤʧβ",
    "stress": "ˈˌ",
    "length": "ː",
    "space": " ",
    "mark": ';:,.!?—…"()“”',
}
SONORANT = "sonorant"  # all that is in none of those
# Most frames by place: inside a word, before a space, before a mark or the end.
MOST = {
    "vowel": (9, 27, 44),
    "stop": (8, 24, 41),
    "fricative": (8, 27, 44),
    "sonorant": (8, 26, 44),
    "stress": (11, 11, 11),
    "length": (7, 18, 42),
    "space": (8, 8, 8),
    "mark": (20, 20, 20),
}
_CLASS_OF = {symbol: name for name, symbols in CLASSES.items() for symbol in symbols}


def class_of(symbol: str) -> str:
    """The class of a symbol of the alphabet."""
    return _CLASS_OF.get(symbol, SONORANT)


def place_before(following: str | None) -> Place:
    """The place of a phoneme before that symbol; None: the end, or not known."""
    if following is None or class_of(following) == "mark":
        return Place.PHRASE
    return Place.WORD if following == " " else Place.INSIDE


def most_frames(symbol: int, following: int, speed: float) -> int:
    """Frames that the phoneme with id ``symbol`` lasts at most before the one with id ``following`` (PAD: not known).

    Slower speech lasts longer; faster speech may take as long as that of speed 1. START and STOP are pads, whose lengths a bundle tells:
    ValueError.
    """
    if symbol in (PAD, START, STOP):
        raise ValueError(f"symbol is {symbol}; allowed: the id of a phoneme")
    place = place_before(None if following in (PAD, START, STOP) else SYMBOLS[following])
    return math.ceil(MOST[class_of(SYMBOLS[symbol])][place.value] / min(speed, 1.0))
