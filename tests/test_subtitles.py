"""SubRip and WebVTT: numbered, timed, in lines of readable length."""

from tts_spec.subtitles import to_srt, to_vtt
from tts_spec.types import Word


def test_lines_break_by_length_and_at_silences() -> None:
    words = [Word(f"word{i:02}", 0, 0, i * 0.5, i * 0.5 + 0.4) for i in range(10)]
    late = Word("late", 0, 0, 3661.2345, 3662.0)
    text = to_srt([*words, late])
    blocks = text.split("\n\n")
    assert blocks[0] == "1\n00:00:00,000 --> 00:00:02,900\nword00 word01 word02 word03 word04 word05"
    assert blocks[-1] == "3\n01:01:01,234 --> 01:01:02,000\nlate\n"
    assert all(len(line) <= 42 for line in text.splitlines())


def test_no_words_no_subtitles() -> None:
    assert to_srt([]) == ""


def test_webvtt_has_the_same_lines_and_a_time_for_each_word() -> None:
    words = [Word("one", 0, 0, 0.0, 0.4), Word("<two>", 0, 0, 0.5, 0.9), Word("three", 0, 0, 2.0, 2.4)]
    assert to_vtt(words) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:00.900\none <00:00:00.500>&lt;two&gt;\n\n00:00:02.000 --> 00:00:02.400\nthree\n"
    )
    assert to_vtt([]) == "WEBVTT\n"
