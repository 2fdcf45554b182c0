"""The symbol table: which character of the phoneme alphabet has which id.

The alphabet is Kokoro-82M's vocabulary (misaki's English set and a few marks of other languages), in the order of
Kokoro's own ids but without their gaps. The ids are built into trained weights: the order must never change, new
symbols go to the end.
Knows nothing of text or of how phonemes are made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from tts_spec.types import SpeechError

PAD = 0  # the id that stands for "no phoneme"; its place in SYMBOLS holds Kokoro's own pad character

SYMBOLS: tuple[str, ...] = (
    "$",  # PAD, never spoken
    *';:,.!?—…"()“”',
    " ",
    "\u0303",  # combining tilde (nasal)
    *"ʣʥʦʨᵝꭧAIOQSTWYᵊ",
    *"abcdefhijklmnopqrstuvwxyz",
    *"ɑɐɒæβɔɕçɖðʤəɚɛɜɟɡɥɨɪʝɯɰŋɳɲɴøɸθœɹɾɻʁɽʂʃʈʧʊʋʌɣɤχʎʒʔ",
    *"ˈˌːʰʲ↓→↗↘ᵻ",
)

# Ids beyond the alphabet that frame a sentence: the silence before its first phoneme and after its last.
START = 126
STOP = 127
TABLE_SIZE = 128  # rows of a trained symbol table; the gap leaves room for new symbols

_IDS = {symbol: i for i, symbol in enumerate(SYMBOLS) if i != PAD}


def table_hash() -> str:
    """SHA-256 of the table: weights trained with another one must not be used."""
    return hashlib.sha256("\x00".join(SYMBOLS).encode()).hexdigest()


def is_symbol(symbol: str) -> bool:
    """Whether ``symbol`` may appear in a phoneme sequence (PAD may not)."""
    return symbol in _IDS


def symbol_ids(symbols: Iterable[str]) -> list[int]:
    """Ids in 1 .. len(SYMBOLS) - 1, one per symbol; a phoneme string is an iterable of symbols.

    Raises SpeechError ``unknown_symbol`` for anything outside the table.
    """
    ids = []
    for position, symbol in enumerate(symbols):
        try:
            ids.append(_IDS[symbol])
        except KeyError:
            raise SpeechError(
                "unknown_symbol",
                f"symbol {symbol!r} at position {position} is not in the table of {len(_IDS)} phoneme symbols",
                "symbols",
            ) from None
    return ids
