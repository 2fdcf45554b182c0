"""The adapter over hibari's grapheme-to-phoneme converter: normalised text in, its tokens with phonemes out.

Knows nothing of the caller's text. Bound to the pinned version of hibari-tts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from hibari.g2p import G2P


@dataclass(frozen=True, slots=True)
class Spoken:
    """One token of the normalised text: text[start:end] sounds as ``phonemes`` (may be empty)."""

    start: int
    end: int
    phonemes: str
    space_after: bool


@lru_cache(maxsize=2)
def load(british: bool) -> G2P:
    """The converter of one accent with everything it loads late, so that no later call waits for it."""
    g2p = G2P(british=british)
    assert g2p.oov is not None
    return g2p


@lru_cache(maxsize=1024)
def spoken(text: str, british: bool) -> tuple[Spoken, ...]:
    """The tokens of ``text``, in order; ``text`` has been through ``normalize``.

    Joining phonemes and spaces gives the string ``G2P.__call__`` would have given.
    """
    g2p = load(british)
    tokens = []
    at = 0
    for token in g2p.phonemize_tokens(g2p.tokenize(text)):
        found = text.find(token.text, at)
        start = at if found < 0 else found
        at = min(start + len(token.text), len(text))
        tokens.append(Spoken(start, at, token.phonemes or "", bool(token.whitespace)))
    return tuple(tokens)
