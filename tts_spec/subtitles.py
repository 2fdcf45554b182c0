"""SubRip and WebVTT subtitles from timed words. Knows words only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tts_spec.types import Word

LINE_CHARS = 42
LINE_GAP_S = 0.6  # a longer silence starts a new subtitle


def to_srt(words: Sequence[Word]) -> str:
    """The words as SubRip text, in lines of at most 42 characters where words allow it."""
    blocks = []
    for number, line in enumerate(_lines(words), 1):
        text = " ".join(word.text for word in line)
        blocks.append(f"{number}\n{_time(line[0].start_s)} --> {_time(line[-1].end_s)}\n{text}\n")
    return "\n".join(blocks)


def to_vtt(words: Sequence[Word]) -> str:
    """The words as WebVTT, in the same lines; within a line each word but the first has its own time, for players that follow it."""
    blocks = ["WEBVTT\n"]
    for line in _lines(words):
        timed = " ".join(f"<{_time(word.start_s, '.')}>{_escaped(word.text)}" for word in line[1:])
        text = f"{_escaped(line[0].text)} {timed}".rstrip()
        blocks.append(f"{_time(line[0].start_s, '.')} --> {_time(line[-1].end_s, '.')}\n{text}\n")
    return "\n".join(blocks)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _lines(words: Iterable[Word]) -> Iterator[list[Word]]:
    line: list[Word] = []
    for word in words:
        length = sum(len(each.text) + 1 for each in line) + len(word.text)
        if line and (length > LINE_CHARS or word.start_s - line[-1].end_s > LINE_GAP_S):
            yield line
            line = []
        line.append(word)
    if line:
        yield line


def _time(seconds: float, point: str = ",") -> str:
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{rest // 1000:02}{point}{rest % 1000:03}"
