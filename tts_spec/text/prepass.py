"""The pre-pass: the caller's text made ready for hibari, with a map back and a warning for whatever is left out.

Order matters: tags first, then characters, addresses, abbreviations, amounts, and last the words hibari would misread. Knows no sound.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tts_spec.text.abbreviations import read_abbreviations
from tts_spec.text.addresses import read_addresses
from tts_spec.text.charset import speakable
from tts_spec.text.homographs import read_homographs
from tts_spec.text.lexicon import Lexicon
from tts_spec.text.markup import MAX_PAUSE_S, Segment, split_markup
from tts_spec.text.quantities import read_quantities
from tts_spec.text.tracked import TrackedText
from tts_spec.types import SpeechWarning

_EMOTICON = re.compile(r"(?<!\S)(?:[:;=]['’]?-?[)(DPpOo|/\\*]|<3|[xX]D|[:;]\)+)(?=$|[\s.,!?])")
_ORPHANS = re.compile(r"\A[\s,;:.!?…]+")


@dataclass(frozen=True, slots=True)
class Prepared:
    """Segments to speak in order, each followed by its pause; offsets count in the text that was prepared."""

    segments: tuple[Segment, ...]
    warnings: tuple[SpeechWarning, ...]


def prepare(text: str, lexicon: Lexicon) -> Prepared:
    """Never fails; text that cannot be spoken at all gives blank segments and warnings."""
    segments, warnings = split_markup(text, lexicon)
    prepared: list[Segment] = []
    for segment in segments:
        if segment.phonemes:
            prepared.append(segment)
            continue
        body, dropped = speakable(segment.text)
        body = _without_emoticons(body, dropped)
        if dropped:  # punctuation that followed only what was left out
            body = body.sub(_ORPHANS, "")
        body = read_homographs(read_quantities(read_abbreviations(read_addresses(body))))
        warnings += dropped
        if prepared and not body.text.strip():  # breaks in a row are one pause
            pause = min(prepared[-1].pause_s + segment.pause_s, MAX_PAUSE_S)
            prepared[-1] = replace(prepared[-1], pause_s=pause)
        else:
            prepared.append(Segment(body, segment.pause_s))
    return Prepared(tuple(prepared), tuple(sorted(warnings, key=lambda w: w.start)))


def _without_emoticons(text: TrackedText, warnings: list[SpeechWarning]) -> TrackedText:
    def drop(match: re.Match[str]) -> str:
        message = f"{match.group()!r} (emoticon) cannot be spoken and is left out"
        warnings.append(SpeechWarning("unspeakable", message, *text.span(*match.span())))
        return " "

    return text.sub(_EMOTICON, drop)
