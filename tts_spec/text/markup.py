"""Tags in the text: a break becomes a pause, sub and phoneme say how to read what they enclose, others are taken out with a warning.

Knows SSML's break, sub and phoneme, character entities, and the Markdown that language models write (links, headings); no speech.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

from tts_spec.text.lexicon import Lexicon
from tts_spec.text.pronunciation import PHONEME, SUB, alias_of, phonemes_of
from tts_spec.text.tracked import TrackedText
from tts_spec.types import SpeechWarning

MAX_PAUSE_S = 10.0

_ATTRIBUTE = r"""\s+[\w:.-]+\s*=\s*(?:"[^"<>]*"|'[^'<>]*')"""
TAG = re.compile(rf"<!--.*?-->|<[?!][^<>]*>|</?[A-Za-z][\w:.-]*(?:{_ATTRIBUTE})*\s*/?>", re.DOTALL)
_BREAK = re.compile(r"<break\b", re.IGNORECASE)
_TIME = re.compile(r"""\btime\s*=\s*["']\s*\+?(\d*\.?\d+)\s*(ms|s)\s*["']""", re.IGNORECASE)
_STRENGTH = re.compile(r"""\bstrength\s*=\s*["']\s*([\w-]+)\s*["']""", re.IGNORECASE)
# Seconds for SSML's named strengths; the standard leaves the lengths to the processor.
_STRENGTHS = {"none": 0.0, "x-weak": 0.1, "weak": 0.2, "medium": 0.4, "strong": 0.7, "x-strong": 1.0}

_MARK = re.compile(r"[.,;:!?…]")
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});")
_LINK = re.compile(r"!?\[([^\]]+)\]\(([^\)]*)\)")
_HEADING = re.compile(r"^[ \t]*#{1,6}[ \t]+(?=[A-Z0-9*])", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of text without tags and the silence the caller wants after it."""

    text: TrackedText
    pause_s: float  # 0 .. MAX_PAUSE_S
    phonemes: str = ""  # where the caller says them; the text is then only what they stand for


def split_markup(text: str, lexicon: Lexicon) -> tuple[list[Segment], list[SpeechWarning]]:
    """Text between breaks, in order, and what was taken out. Offsets count in ``text``."""
    warnings: list[SpeechWarning] = []
    segments: list[Segment] = []
    source = TrackedText(text)
    elements = {match.start(): match for pattern in (SUB, PHONEME) for match in pattern.finditer(text)}
    words = {match.start(): symbols for match, symbols in lexicon.spoken(text)}
    begin = understood = 0
    marks = [*TAG.finditer(text), *(match for match, _ in lexicon.spoken(text))]
    for tag in sorted(marks, key=lambda mark: mark.start()):
        if tag.start() < understood:
            continue
        understood = tag.end()
        if symbols := words.get(tag.start(), ""):
            mark = _MARK.match(text, tag.end())
            segments.append(Segment(source[begin : tag.start()], 0.0))
            segments.append(Segment(source[slice(*tag.span())], 0.0, symbols + (mark.group() if mark else "")))
            begin = understood = mark.end() if mark else tag.end()
            continue
        if element := elements.get(tag.start()):
            understood = element.end()
            if element.re is SUB:
                continue  # its alias is put in with the rest of the text
            if given := phonemes_of(element):
                segments.append(Segment(source[begin : tag.start()], 0.0))
                segments.append(Segment(source[slice(*element.span("inner"))], 0.0, given + element.group("mark")))
                begin = element.end()
            else:
                message = (
                    f"{element.group()[:80]!r} has no English phonemes in IPA or CMU Arpabet and is read as written"
                )
                warnings.append(_warning("invalid_phonemes", message, tag))
            continue
        pause = _pause(tag.group()) if _BREAK.match(tag.group()) else None
        if pause is None:
            warnings.append(_warning("ssml_stripped", f"the tag {tag.group()!r} is not spoken", tag))
            continue
        if pause > MAX_PAUSE_S:
            message = f"the break of {pause:g} s is cut to {MAX_PAUSE_S:g} s"
            warnings.append(_warning("pause_capped", message, tag))
        segments.append(Segment(source[begin : tag.start()], min(pause, MAX_PAUSE_S)))
        begin = tag.end()
    segments.append(Segment(source[begin:], 0.0))
    return [s if s.phonemes else Segment(_plain(s.text, warnings, lexicon), s.pause_s) for s in segments], warnings


def _pause(tag: str) -> float | None:
    """Seconds of a break tag, None when it does not say a valid time."""
    if time := _TIME.search(tag):
        return float(time.group(1)) * (0.001 if time.group(2).lower() == "ms" else 1.0)
    if strength := _STRENGTH.search(tag):
        return _STRENGTHS.get(strength.group(1).lower())
    return None if re.search(r"\btime\b", tag) else _STRENGTHS["medium"]


def _plain(text: TrackedText, warnings: list[SpeechWarning], lexicon: Lexicon) -> TrackedText:
    source = text

    def link(match: re.Match[str]) -> list[tuple[str, int, int]]:
        start, end = source.span(match.end(1), match.end())
        warnings.append(
            SpeechWarning("markup_stripped", f"the link target {match.group(2)!r} is not spoken", start, end)
        )
        return [(match.string[i], i, i + 1) for i in range(*match.span(1))]

    source = text = text.sub(SUB, alias_of).sub(TAG, " ")
    text = text.sub(_LINK, link).sub(_HEADING, " ")
    text = text.sub(_ENTITY, lambda m: html.unescape(m.group()))
    return text if lexicon.written is None else text.sub(lexicon.written, lexicon.reading)


def _warning(code: str, message: str, match: re.Match[str]) -> SpeechWarning:
    return SpeechWarning(code, message, match.start(), match.end())
