"""Cut a growing text into clauses: a clause leaves as soon as its end is sure.

Knows punctuation, abbreviations and tags, not how anything is spoken. Every decision depends on the text from the
clause's start to a bounded look-ahead, never on how the text was cut into pieces, so the same text always gives the
same clauses.
Cases follow the golden rules of pysbd and pocket-tts' ``test_split_sentences.py``.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace

from tts_spec.types import SpeechError

MAX_TAG = 200  # a "<" that is not closed within this many characters is not a tag
_LOOK = 32  # the most white space looked over to find what comes next


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Never at the end of a sentence: a name or an explanation follows.
_TITLES = _words(
    """dr mr mrs ms mx prof st mt ft gen gov sen rep capt lt col sgt cmdr rev hon pres cpl maj adm fr msgr supt messrs
    e.g i.e cf vs viz approx ca et"""
)
# An abbreviation before a number, an ordinary word otherwise ("No. 5" but "No. Never.").
_NUMBERED = _words("no nos fig figs vol ch p pp sec eq art ref ver")
# May end a sentence: only what follows tells.
_OPEN = _words(
    """etc inc ltd co corp jr sr bros dept univ est ave blvd rd ln hwy al a.m p.m am pm ph.d
    jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thurs fri sat sun"""
)
# Words that begin a sentence far more often than they continue a name.
_STARTERS = _words(
    """A After All Also Although An And Another As At Before Both But By Can Could Did Do Does During Each Even Every
    Finally First For From He Her Here His How However I If In Instead Is It Its Just Last Later Let Many Maybe
    Meanwhile More Most My Never New Next No Not Now Of On Once One Only Or Other Our Please She Should Since So Some
    Still Such Thanks That The Their Then There These They This Those Three Though Thus To Today Two Under Unlike Until
    We Well What When Where Which While Who Why Will With Without Would Yes Yet You Your"""
)

_MARK = re.compile(r"[.!?…。！？,;:—–\n<]")
_TERMINATOR = re.compile(r"([.!?…。！？]{1,16})([\"'”’»)\]}*_`]{0,8})")
_ENDED = re.compile(_TERMINATOR.pattern + r"\Z")
_SOFT = re.compile(r"[,;:—–][\"'”’»)\]}*_`]{0,8}")
_SPACE = re.compile(rf"\s{{0,{_LOOK}}}")
_NEXT = re.compile(rf"\s{{0,{_LOOK}}}[\"'“‘«(\[*_`]{{0,4}}")
_NEXT_WORD = re.compile(r"[A-Za-z]{0,12}")
_LAST_WORD = re.compile(r"[^\s(\[{\"“‘'<>/—*_]*\Z")
_DOTTED = re.compile(r"(?:[A-Za-z]{1,2}\.)+[A-Za-z]{1,2}\Z")  # U.S, a.m, Ph.D, J.R.R


@dataclass(frozen=True, slots=True)
class Clause:
    """A piece of text to speak in one go, without the white space around it."""

    text: str
    start: int  # offset of text[0] in everything that was fed
    end_of_sentence: bool  # False after a comma or a cut at the length cap


@dataclass(frozen=True, slots=True)
class _Cut:
    end: int
    sentence: bool


class _Wait:
    """The verdict needs text that has not arrived."""


_WAIT = _Wait()
_Verdict = _Cut | _Wait | int  # an int: no cut here, go on scanning at this index


class ClauseSplitter:
    """Incremental splitter; the text held back is bounded by the limits, the work is linear in the text.

    Args:
        min_soft: a comma, semicolon, colon or dash ends a clause only from this many characters on.
        max_chars: a clause is cut at a space (or hard, if there is none) at this many characters.

    Raises SpeechError ``invalid_value`` unless 1 <= min_soft <= max_chars <= 10000.
    """

    def __init__(self, min_soft: int = 40, max_chars: int = 200) -> None:
        if not 1 <= min_soft <= max_chars <= 10_000:
            raise SpeechError(
                "invalid_value",
                f"min_soft is {min_soft!r}, max_chars {max_chars!r}; allowed: 1 <= min_soft <= max_chars <= 10000",
                "min_soft",
            )
        self._min_soft = min_soft
        self._max_chars = max_chars
        self._text = ""  # from the start of the open clause
        self._offset = 0  # of _text[0] in everything fed
        self._scan = 0  # next index of _text to look at
        self._tags: list[tuple[int, int]] = []  # tags of the open clause, indices into _text

    def feed(self, piece: str) -> list[Clause]:
        """Append text; return the clauses that are complete now."""
        self._text += piece
        return self._drain(final=False)

    def flush(self) -> list[Clause]:
        """Return what is left, as if the text ended here. More text may be fed afterwards."""
        return self._drain(final=True)

    @property
    def holds(self) -> bool:
        """Whether text is held back whose clause is not complete."""
        return bool(self._text.strip())

    def release(self, whole: bool) -> list[Clause]:
        """Return what is held back although its clause is open, for a speaker who cannot wait any longer.

        A last word with nothing after it may be half a word, and a tag may be half a tag: they stay unless ``whole``. The last clause
        ends a sentence only if it has the mark of one.
        """
        text = self._text
        end = len(text)
        if not whole:
            tag = text.rfind("<")
            if tag >= 0 and ">" not in text[tag:] and end - tag < MAX_TAG:
                end = tag
            while end and not text[end - 1].isspace():
                end -= 1
        rest = text[end:]
        self._text, self._scan = text[:end], min(self._scan, end)
        clauses = self._drain(final=True)
        self._text += rest
        if clauses:
            clauses[-1] = replace(clauses[-1], end_of_sentence=bool(_ENDED.search(clauses[-1].text)))
        return clauses

    def _drain(self, final: bool) -> list[Clause]:
        clauses = []
        begin = 0
        while True:
            while begin < len(self._text) and self._text[begin].isspace():
                begin += 1
            self._scan = max(self._scan, begin)
            cut = self._next_cut(begin, final) if begin < len(self._text) else None
            if cut is None:
                break
            spoken = self._text[begin : cut.end].rstrip()
            clauses.append(Clause(spoken, self._offset + begin, cut.sentence))
            begin = self._scan = cut.end
            self._tags.clear()
        self._text = self._text[begin:]
        self._offset += begin
        self._scan -= begin
        self._tags = [(a - begin, b - begin) for a, b in self._tags]
        return clauses

    def _next_cut(self, begin: int, final: bool) -> _Cut | None:
        text, limit = self._text, begin + self._max_chars
        while mark := _MARK.search(text, self._scan, min(limit, len(text))):
            verdict = self._judge(begin, mark.start(), final)
            if isinstance(verdict, _Wait):
                return None
            if isinstance(verdict, _Cut):
                return verdict
            self._scan = verdict
        if len(text) > limit:
            return _Cut(self._forced(begin, limit), sentence=False)
        self._scan = max(self._scan, len(text))
        return _Cut(len(text), sentence=True) if final else None

    def _judge(self, begin: int, at: int, final: bool) -> _Verdict:
        char = self._text[at]
        if char == "<":
            return self._tag(at, final)
        if char == "\n":
            return self._newline(at, final)
        if char in ",;:—–":
            return self._soft(begin, at, final)
        return self._terminator(begin, at, final)

    def _tag(self, at: int, final: bool) -> _Verdict:
        text = self._text
        if at + 1 == len(text):
            return at + 1 if final else _WAIT
        if not (text[at + 1].isalpha() or text[at + 1] in "/!?"):
            return at + 1
        close = text.find(">", at, at + MAX_TAG)
        other = text.find("<", at + 1, at + MAX_TAG if close < 0 else close)
        if other >= 0:
            return at + 1
        if close >= 0:
            self._tags.append((at, close + 1))
            return close + 1
        return at + 1 if final or len(text) >= at + MAX_TAG else _WAIT

    def _newline(self, at: int, final: bool) -> _Verdict:
        """A blank line, or a line that does not go on in lower case, ends the sentence (headings, lists)."""
        run = _SPACE.match(self._text, at)
        assert run is not None
        if run.group().count("\n") > 1 or len(run.group()) == _LOOK:
            return _Cut(at, sentence=True)
        if run.end() == len(self._text):
            return _Cut(at, sentence=True) if final else _WAIT
        return run.end() if self._text[run.end()].islower() else _Cut(at, sentence=True)

    def _soft(self, begin: int, at: int, final: bool) -> _Verdict:
        match = _SOFT.match(self._text, at)
        assert match is not None
        end = match.end()
        if end - begin < self._min_soft:
            return at + 1
        if end == len(self._text):
            return at + 1 if final else _WAIT
        if self._text[at] != "—" and not self._text[end].isspace():
            return at + 1
        following = self._following(end, final)
        if following is None:
            return _WAIT
        # "March 4, 2025" is one date, and a clause never begins with white space or nothing
        return at + 1 if following == "" or following.isdigit() else _Cut(end, sentence=False)

    def _terminator(self, begin: int, at: int, final: bool) -> _Verdict:
        match = _TERMINATOR.match(self._text, at)
        assert match is not None
        run, closers = match.groups()
        end = match.end()
        if end == len(self._text):
            return _Cut(end, sentence=True) if final else _WAIT
        if not self._text[end].isspace():
            return _Cut(end, sentence=True) if run[-1] in "。！？" else end
        if run == ".":
            return self._full_stop(begin, at, end, bool(closers), final)
        trailing_off = not set(run) & set("!?。！？")
        if not closers and not trailing_off:
            return _Cut(end, sentence=True)
        return self._unless_lower(end, final)

    def _full_stop(self, begin: int, at: int, end: int, closers: bool, final: bool) -> _Verdict:
        word_match = _LAST_WORD.search(self._text, max(begin, at - 24), at)
        word = word_match.group() if word_match else ""
        lower = word.lower()
        if lower in _TITLES and not closers:
            return end
        if at - len(word) == begin and (word.isdigit() or (len(word) == 1 and word.isalpha())):
            return end  # "3. Open the door", "J. Smith"
        if lower in _NUMBERED and not closers:
            following = self._following(end, final)
            if following is None:
                return _WAIT
            return end if following.isdigit() else _Cut(end, sentence=True)
        initial = len(word) == 1 and word.isupper()
        if (initial or lower in _OPEN or _DOTTED.match(word)) and not closers:
            return self._if_starter(end, final)
        return self._unless_lower(end, final) if closers else _Cut(end, sentence=True)

    def _unless_lower(self, end: int, final: bool) -> _Verdict:
        following = self._following(end, final)
        if following is None:
            return _WAIT
        return end if following.islower() else _Cut(end, sentence=True)

    def _if_starter(self, end: int, final: bool) -> _Verdict:
        gap = _NEXT.match(self._text, end)
        assert gap is not None
        word = _NEXT_WORD.match(self._text, gap.end())
        assert word is not None
        if word.end() == len(self._text) and not final and len(gap.group()) < _LOOK:
            return _WAIT
        starts = word.group() in _STARTERS and self._text[word.end() : word.end() + 1] != "."
        return _Cut(end, sentence=True) if starts or "\n" in gap.group() else end

    def _following(self, end: int, final: bool) -> str | None:
        """The first character after the gap at ``end`` (quotes passed over), "" at the end or after a very long gap,
        None when it has not arrived."""
        gap = _NEXT.match(self._text, end)
        assert gap is not None
        if len(gap.group()) >= _LOOK:
            return ""
        if gap.end() == len(self._text):
            return "" if final else None
        return self._text[gap.end()]

    def _forced(self, begin: int, limit: int) -> int:
        """Where to cut a clause that reached the cap: its last space outside a tag, else the cap itself."""
        text = self._text
        inside = next(((a, b) for a, b in self._tags if a < limit < b), None)
        for i in range(limit, begin, -1):
            if text[i].isspace() and not any(a < i < b for a, b in self._tags):
                return i
        if inside is not None:
            return inside[0] if inside[0] > begin else inside[1]
        cut = limit
        while cut > begin + 1 and _joins(text[cut]):
            cut -= 1
        return cut


def _joins(char: str) -> bool:
    """Whether ``char`` belongs to the character before it (combining marks, joiners, emoji modifiers)."""
    return unicodedata.category(char) in ("Mn", "Me", "Mc", "Cf") or "\U0001f3fb" <= char <= "\U0001f3ff"
