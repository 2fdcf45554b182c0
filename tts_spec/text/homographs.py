"""Words that hibari reads otherwise than people do: those written alike and told apart by their neighbours, and names.

Only what is wrong with hibari and sure from the neighbouring words is here; hibari's own tagger tells most homographs apart. Readings are
phonemes in hibari's syntax. Knows English; knows no sound.
"""

from __future__ import annotations

import re

from tts_spec.text.tracked import TrackedText

_MODAL = (
    r"(?:will|would|can|could|may|might|must|shall|should|did|do|does|didn't|don't|won't|can't|cannot)(?: not| never)?"
)
_CLOTH = r"(?:dress|shirt|paper|fabric|cloth|sail|page|coat|skirt|jacket|muscle|curtain)"

# Pattern whose match is the word, and its reading.
_CONTEXTS = (
    (r"\b[Bb]ass(?=(?:es)? (?:guitars?|players?|drums?|lines?|clef|solos?|notes?|boost|section|singers?|voices?|speakers?)\b)", "bˈAs"),
    (r"(?<=[Dd]ouble )bass\b", "bˈAs"),
    (r"(?<=\b[Pp]lays )bass\b|(?<=\b[Pp]lay )bass\b|(?<=\b[Pp]layed )bass\b|(?<=\bthe )bass(?= (?:is|was) too)", "bˈAs"),
    (r"(?<=take a )bow\b|(?<=took a )bow\b|(?<=takes a )bow\b", "bˈW"),
    (r"\b[Bb]ow(?= (?:down|before|out)\b)", "bˈW"),
    (r"(?<=made her )content\b|(?<=made him )content\b|(?<=made them )content\b|(?<=made me )content\b|(?<=made us )content\b", "kəntˈɛnt"),
    (r"(?<=perfectly )content\b|(?<=quite )content\b|\b(?:content)(?= to (?:be|sit|stay|wait|let|have|do|live|watch)\b)", "kəntˈɛnt"),
    (rf"(?<!\w){_MODAL} (?P<word>object)\b", "əbʤˈɛkt"),
    (rf"(?<!\w){_MODAL} (?P<word>project)\b(?! manage)", "pɹəʤˈɛkt"),
    (rf"(?<!\w){_MODAL} (?P<word>entrance)\b", "ɛntɹˈæns"),
    (rf"(?<!\w){_MODAL} (?:I |you |we |they )?(?P<word>intimate)\b", "ˈɪntəmˌAt"),
    (r"(?<=\bto )object(?= to\b)", "əbʤˈɛkt"),
    (r"\b[Ll]ead(?= (?:pipes?|paint|poisoning|weights?|bullets?|acid|sheets?|shot)\b)", "lˈɛd"),
    (r"(?<=made of )lead\b|(?<=get the )lead(?= out\b)", "lˈɛd"),
    (rf"\b[Tt]ears?(?= in (?:the|her|his|my|your|our|their) {_CLOTH})", "tˈɛɹ"),
    (r"(?<!\w)(?:[Tt]o|will|would|can|could|may|might|must|don't|not|[Pp]lease) (?P<word>tear)\b", "tˈɛɹ"),
    (r"\b[Tt]ear(?= (?:down|apart|off|open|it|them|this|that|along)\b)", "tˈɛɹ"),
    (r"(?<=\ba )row(?= (?:broke|between|about|among|over|erupted|with (?:her|his|my|the)) )|(?<=had a )row\b(?! of)", "ɹˈW"),
    (r"(?<=bucks and )does\b|(?<=the )does(?= (?:are|were|and)\b)", "dˈOz"),
    (r"(?<=\bdove )dove\b|(?<=\b[Hh]e )dove\b|(?<=\b[Ss]he )dove\b|(?<=\b[Tt]hey )dove\b|(?<=\bwho )dove\b|(?<=\bI )dove\b", "dˈOv"),
    (r"(?<=\bthe )invalid(?=[.,;:!?]|\s*$)|(?<=\ban )invalid(?=[.,;:!?]|\s*$)", "ˈɪnvələd"),
    (r"\bREADME\b", "ɹˈid mˌi"),
)  # fmt: skip

# Names and words of the trade, as written.
NAMES = {
    "Nguyen": "wˈɪn", "Siobhan": "ʃəvˈɔn", "Joaquin": "wɑkˈin", "Goethe": "ɡˈɜɹtə", "Gogh": "ɡˈO", "François": "fɹɑnswˈɑ",
    "Zoë": "zˈOi", "Saoirse": "sˈɜɹʃə", "Niamh": "nˈiv", "Caoimhe": "kˈivə", "Aoife": "ˈifə", "O'Reilly": "ˌO ɹˈIli",
    "La Jolla": "lə hˈYə", "Des Moines": "də mˈYn", "JSON": "ʤˈAsᵊn", "YAML": "jˈæmᵊl", "nginx": "ˈɛnʤən ˈɛks", "LaTeX": "lˈAtɛk",
    "kubectl": "kjˈub kəntɹˈOl", "OAuth": "ˈO ˈɔθ",
}  # fmt: skip

_NAME = re.compile(rf"(?<![\w-])({'|'.join(sorted(map(re.escape, NAMES), key=len, reverse=True))})('s)?(?!\w)")
_WORD = re.compile(
    r"\b(?:[Bb]ass|[Bb]ow|content|object|project|entrance|intimate|[Ll]ead|[Tt]ears?|row|does|dove|invalid|README)\b"
)
_COMPILED = tuple((re.compile(pattern), reading) for pattern, reading in _CONTEXTS)


def read_homographs(text: TrackedText) -> TrackedText:
    """Such words with their phonemes, after everything else."""
    if _WORD.search(text.text):
        for pattern, reading in _COMPILED:
            text = text.sub(pattern, lambda m, reading=reading: _given(m, reading))  # type: ignore[misc]
    return text.sub(
        _NAME, lambda m: f"[{m.group()}](/{_possessive(NAMES[m.group(1)]) if m.group(2) else NAMES[m.group(1)]}/)"
    )


def _given(m: re.Match[str], reading: str) -> list[tuple[str, int, int]]:
    """The match again, its word (the group of that name, or all of it) as given phonemes."""
    start, end = m.span("word" if "word" in m.re.groupindex else 0)
    word = m.string[start:end]
    return [
        *((m.string[i], i, i + 1) for i in range(m.start(), start)),
        (f"[{word}](/{reading}/)", start, end),
    ]


def _possessive(sounds: str) -> str:
    return sounds + ("ᵻz" if sounds[-1] in "szʃʒʧʤ" else "s" if sounds[-1] in "ptkfθ" else "z")
