"""What users of such services complain about in public: each entry has tests, or a reason why it cannot occur here.

The letters and numbers are those of the list the tests are named after (``test_h52_...``): A clicks and seams, B cut or extra audio,
D sessions mixed up, F event loop, G formats, H text, I controls, errors and memory.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

ENTRIES = {
    "a1": "a header in every chunk",
    "a2": "the codec's overlap is shorter than what it sees",
    "a3": "the page chains buffers when the last one has ended",
    "a4": "a pop where a sentence ends",
    "a6": "chunks of independent generations begin at full level",
    "a7": "clicks in the browser",
    "a8": "a Xing frame in the middle of a stream",
    "b10": "the last word is cut",
    "b11": "Opus loses its last second",
    "b12": "an end the decoder does not accept",
    "b14": "a long text stops after 14 seconds",
    "b15": "speech nobody wrote at the end",
    "b16": "a short text and a minute of noise",
    "b17": "the first word is cut",
    "d28": "another request's voice",
    "d29": "two callers get the same audio",
    "d30": "audio in the wrong session",
    "d32": "one request id for everybody",
    "f42": "sockets die while the model runs",
    "g45": "lengths of a streamed WAV",
    "g47": "the rate declared is not the rate sent",
    "g48": "streams that players cannot read",
    "g50": "SSE asked for, audio sent",
    "h52": "nothing to say hangs or fails",
    "h53": "numbers, dates, currencies misread",
    "h54": "times of other words than the caller's, and drift",
    "h56": "long text cut without a word",
    "i58": "failures swallowed",
    "i59": "memory grows",
    "i61": "an unbounded queue for a slow client",
}

# Tested under another name.
ELSEWHERE = {
    "a2": ("codec/test_stream.py", "test_any_cutting_gives_the_same_samples"),
    "a3": ("demo/test_page.py", "test_a7_samples_arrive_in_the_worklet_and_sound"),  # one worklet, no chain of buffers
    "h53": ("text/test_readings.py", "test_reading"),
}

CANNOT = {
    "a6": "a stream is one generation with one state of the codec; nothing independent is joined",
    "b17": "nothing is trimmed: the first sample sent is the first one decoded, and no format drops or delays it (b10)",
}


def named() -> set[str]:
    found: set[str] = set()
    for file in TESTS.rglob("test_*.py"):
        for name in re.findall(r"def test_((?:[a-i]\d{1,2}_)+)", file.read_text("utf-8")):
            found.update(name.strip("_").split("_"))
    return found


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_complaint_has_a_test_or_a_reason(entry: str) -> None:
    if entry in ELSEWHERE:
        path, name = ELSEWHERE[entry]
        assert f"def {name}(" in (TESTS / path).read_text("utf-8")
    else:
        assert (entry in named()) != (entry in CANNOT), f"{entry}: {ENTRIES[entry]}"
