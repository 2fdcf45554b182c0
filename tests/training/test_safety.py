"""The safety run: what it counts, its cases, and going on after a stop."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from models.evaluation.sentences import held_out_sentences
from models.training.composed import composed_sentences
from models.training.safety import FLOOR, CountedStream, Outcome, cases, read, summary, word_ratios
from models.training.texts import is_held_out
from tts_spec.synthesizer import Synthesizer
from tts_spec.text.symbols import START, STOP, symbol_ids
from tts_spec.types import SpeakOptions, SpeechError

GOOD = Outcome(0, "A b.", "heart", 1.0, 2.0, 2.1, [1.0, 0.9], [], 0.3, 0.3, 0.1)


def test_a_good_sentence_has_no_faults() -> None:
    assert GOOD.faults == []


@pytest.mark.parametrize(
    ("fields", "faults"),
    [
        ({"seconds": 1.0}, ["sentence short"]),
        ({"seconds": 4.0}, ["sentence long"]),
        ({"words": [0.2, 1.0]}, ["word short"]),
        ({"words": [1.0, 0.2]}, ["word short", "early end"]),
        ({"words": [4.0, 1.0]}, ["word long"]),
        ({"words": None}, []),
        ({"capped": ["s"]}, ["capped"]),
        ({"silence_s": 1.3}, ["silence"]),
        ({"silence_s": 1.3, "speed": 0.8}, []),
        ({"tail_s": 2.0}, ["silence"]),
        ({"noise_s": 0.7}, ["noise"]),
    ],
)
def test_faults(fields: dict[str, object], faults: list[str]) -> None:
    assert replace(GOOD, **fields).faults == faults  # type: ignore[arg-type]


def test_words_are_compared_across_pads_and_pauses() -> None:
    """Ours is two sentences with pads between them, the teacher's one; pauses do not count."""
    ids = [START, *symbol_ids("hˈI."), STOP, START, *symbol_ids("jˈu ˈA!"), STOP]
    frames = [5, 1, 2, 3, 40, 9, 4, 2, 1, 4, 30, 2, 8, 7, 9]
    taught = (9, 1, 2, 3, 2, 2, 2, 1, 2, 2, 2, 8, 1, 9)
    ratios = word_ratios(ids, frames, "hˈI. jˈu ˈA!", taught)
    assert ratios == [1.0, (7 + FLOOR) / (5 + FLOOR), 1.0]
    assert word_ratios(ids, frames, "hˈI. jˈu ˈO!", taught) is None


def test_the_summary_counts() -> None:
    found = summary([GOOD, replace(GOOD, seconds=1.05, words=[0.1, 1.0], capped=["s", "t"])])
    assert found["faults"] == {"sentence short": 1, "word short": 1, "capped": 1}
    assert (found["sentences"], found["faulty_sentences"], found["words"], found["words_outside"]) == (2, 1, 4, 1)
    assert found["duration_ratio_range"] == [0.5, 0.952]


def test_cases_are_held_out_and_repeatable() -> None:
    texts = {"composed": composed_sentences(300, 5), "examples": [*held_out_sentences(), *held_out_sentences()]}
    made = cases(texts, ["heart", "emma"], 400, seed=3)
    assert made == cases(texts, ["heart", "emma"], 400, seed=3)
    assert made != cases(texts, ["heart", "emma"], 400, seed=4)
    assert len({case.text for case in made}) == 400
    assert all(is_held_out(case.text) for case in made)
    assert {case.voice for case in made} == {"heart", "emma"}
    with pytest.raises(SpeechError, match="n is 9999; allowed: a whole number from 1 to"):
        cases(texts, ["heart"], 9999, seed=3)


def test_a_stopped_run_goes_on_where_it_was(tmp_path: Path) -> None:
    path, recipe = tmp_path / "out.jsonl", {"n": 2}
    assert read(path, recipe) == []
    with path.open("a") as file:
        file.write(json.dumps(asdict(GOOD)) + "\n" + json.dumps(asdict(GOOD))[:40])
    assert read(path, recipe) == [GOOD]
    assert read(path, recipe) == [GOOD]
    with pytest.raises(SpeechError, match="another bundle, seed or n"):
        read(path, {"n": 3})


def test_frames_are_those_of_the_audio(tiny: Synthesizer) -> None:
    stream = CountedStream(tiny, SpeakOptions(seed=2))
    pcm = stream.run("Hello there. Fine, thank you!")
    assert 600 * sum(stream.frames) == len(pcm)
    assert len(stream.frames) == len(stream.symbols)
    assert stream.symbols[0] == START
    assert stream.symbols[-1] == STOP
    assert len(stream.capped) == sum(frames == 8 for frames in stream.frames) > 0  # random weights hang often
