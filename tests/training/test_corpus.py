"""The corpus command: the plan, the shards, going on after a stop; and the teacher itself (slow)."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from rich.progress import Progress

from models.evaluation.hard_words import hard_sentences
from models.evaluation.sentences import held_out_sentences
from models.training import corpus
from models.training.composed import composed_sentences
from models.training.corpus import Planned, held_out, make_utterance, parse_voices, plan, write_shard
from models.training.corpus_reader import decode_audio, load_audio, read_corpus, read_shard
from models.training.dataset import PackedCorpus, pack
from models.training.packages import cached_folder, npm_package
from models.training.teacher import Teacher, TeacherPace, TeacherSpeech, phonemise, vocabulary
from models.training.texts import is_held_out
from tts_spec.text.symbols import SYMBOLS
from tts_spec.types import SpeechError

TEXTS = {name: composed_sentences(400, seed) for seed, name in enumerate(corpus.SOURCES)}


class Tone:
    """Stands in for the teacher where only the writing of shards is tested: two units of a tone per phoneme."""

    def __init__(self) -> None:
        self.spoken = 0

    def speak(self, phonemes: str, voice: str, speed: float = 1.0) -> TeacherSpeech:
        self.spoken += 1
        durations = (2,) * (len(phonemes) + 2)
        pcm = 0.3 * np.sin(np.arange(600 * sum(durations)) * 0.05).astype(np.float32)
        return TeacherSpeech(pcm, durations, np.full(2 * sum(durations), 190.6, dtype=np.float32))


def test_plan_is_repeatable_and_keeps_held_out_sentences_out() -> None:
    texts = TEXTS | {"examples": [*TEXTS["examples"], *held_out_sentences()]}
    voices = parse_voices(corpus.VOICES)
    items = list(islice(plan(texts, voices, seed=1), 3000))
    assert items == list(islice(plan(texts, voices, seed=1), 3000))
    assert items != list(islice(plan(texts, voices, seed=2), 3000))
    assert not [item.text for item in items if is_held_out(item.text)]
    assert 0.56 < sum(item.speed == 1 for item in items) / 3000 < 0.65
    assert all(0.8 <= item.speed <= 1.3 for item in items)
    assert 0.20 < sum(item.voice == "af_heart" for item in items) / 3000 < 0.28
    assert all(map(is_held_out, held_out(texts, seed=1)))


def test_voices_are_parsed_and_checked() -> None:
    assert parse_voices("af_heart=2, bm_fable") == {"af_heart": 2.0, "bm_fable": 1.0}
    for bad in ("af_heart=x", "=1", "af_heart=0", "", "af_heart=nan"):
        with pytest.raises(SpeechError, match="voices has"):
            parse_voices(bad)


def test_a_stopped_corpus_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "SHARD", 3)

    def make(goal_s: float) -> int:
        teacher = Tone()
        corpus._speak(tmp_path, teacher, plan(TEXTS, {"af_heart": 1.0}, seed=0), goal_s)  # type: ignore[arg-type]
        return teacher.spoken

    first = make(10.0)
    shards = {path.name: path.read_bytes() for path in tmp_path.glob("*.tar")}
    assert make(10.0) == 0
    second = make(30.0)
    assert second > 0
    assert all((tmp_path / name).read_bytes() == body for name, body in shards.items())
    pairs = list(read_corpus(tmp_path))
    assert len(pairs) == first + second
    assert len({utterance.id for utterance, _ in pairs}) == len(pairs)
    assert sum(utterance.samples for utterance, _ in pairs) >= 30 * 24_000
    utterance, ogg = pairs[0]
    assert utterance.f0[0] == 191
    assert utterance.phonemes == phonemise(utterance.text, utterance.voice)
    assert load_audio(utterance, ogg).shape == (utterance.samples,)


def test_an_interrupted_shard_is_not_there(tmp_path: Path) -> None:
    def broken():  # type: ignore[no-untyped-def]
        yield make_utterance(Tone(), Planned(0, "Hello there.", "af_heart", 1.0))  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shard(tmp_path / "00000.tar", broken())
    assert not list(tmp_path.glob("*.tar"))


def test_another_recipe_is_refused(tmp_path: Path) -> None:
    corpus._check_recipe(tmp_path, TEXTS, {"af_heart": 1.0}, seed=0)
    corpus._check_recipe(tmp_path, TEXTS, {"af_heart": 1.0}, seed=0)
    with pytest.raises(SpeechError, match="seed"):
        corpus._check_recipe(tmp_path, TEXTS, {"af_heart": 1.0}, seed=1)


def test_nothing_to_say_is_left_out(tmp_path: Path) -> None:
    assert make_utterance(Tone(), Planned(0, "  ", "af_heart", 1.0)) is None  # type: ignore[arg-type]
    with Progress(disable=True) as progress:
        done = corpus._Done(progress, progress.add_task("x"), 1.0)
        write_shard(tmp_path / "0.tar", corpus._spoken(Tone(), [Planned(0, " ", "af_heart", 1.0)], done))  # type: ignore[arg-type]
    assert list(read_shard(tmp_path / "0.tar")) == []


def test_vocabulary_is_that_of_the_symbol_table() -> None:
    assert set(SYMBOLS[1:]) == set(vocabulary())
    assert max(vocabulary().values()) == 177


def test_british_voices_get_british_rules() -> None:
    assert phonemise("The bath, please.", "af_heart") == "ðə bˈæθ, plˈiz."
    assert phonemise("The bath, please.", "bf_emma") == "ðə bˈɑːθ, plˈiːz."


def test_a_failed_fetch_leaves_nothing(tmp_path: Path) -> None:
    def fail(work: Path, root: Path) -> None:
        root.mkdir()
        raise RuntimeError("no network")

    with pytest.raises(RuntimeError, match="no network"):
        cached_folder(tmp_path / "npm" / "x", fail)
    assert list((tmp_path / "npm").iterdir()) == []
    assert cached_folder(tmp_path / "npm" / "x", lambda work, root: root.mkdir()).is_dir()


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_an_impossible_package_says_so(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="npm pack"):
        npm_package("Not A Package", "0", tmp_path)


@pytest.mark.slow
def test_the_teacher_speaks_with_exact_durations() -> None:
    teacher = Teacher.load()
    phonemes = phonemise("She was very gifted.", "bm_fable")
    speech = teacher.speak(phonemes, "bm_fable", 1.23)
    assert len(speech.durations) == len(phonemes) + 2
    assert len(speech.pcm) == 600 * sum(speech.durations)
    assert len(speech.f0) == 2 * sum(speech.durations)
    voiced = speech.f0[speech.f0 > 0]
    assert 0.3 < len(voiced) / len(speech.f0) < 0.95
    assert 70 < np.median(voiced) < 200  # a man's voice
    again = teacher.speak(phonemes, "bm_fable", 1.23)
    assert again.durations == speech.durations
    assert TeacherPace.load().durations(phonemes, "bm_fable", 1.23) == speech.durations
    assert np.array_equal(again.f0, speech.f0)
    assert sum(teacher.speak(phonemes, "bm_fable", 0.8).durations) > sum(speech.durations)
    pcm = decode_audio(corpus.encode_audio(speech.pcm))
    assert np.corrcoef(pcm, speech.pcm)[0, 1] > 0.9
    for phonemes_, voice, speed, field in (
        ("", "af_heart", 1.0, "phonemes"),
        ("a" * 510, "af_heart", 1.0, "phonemes"),
        ("$", "af_heart", 1.0, "phonemes"),
        ("a", "af_nobody", 1.0, "voice"),
        ("a", "af_heart", 3.0, "speed"),
    ):
        with pytest.raises(SpeechError) as error:
            teacher.speak(phonemes_, voice, speed)
        assert error.value.field == field


def test_packing_joins_corpora_and_leaves_held_out_sentences_out(tmp_path: Path) -> None:
    texts = ["Turn left at the office.", held_out_sentences()[0], "Is Rosa in the kitchen?", hard_sentences()[0].text]
    for number, text in enumerate(texts):
        (folder := tmp_path / str(number % 2)).mkdir(exist_ok=True)
        pair = make_utterance(Tone(), Planned(number, text, "af_heart", 1.0))  # type: ignore[arg-type]
        assert pair is not None
        write_shard(folder / f"{number:05}.tar", iter([pair]))
    pack([tmp_path / "0", tmp_path / "1"], tmp_path / "packed")
    packed = PackedCorpus(tmp_path / "packed")
    assert [row.text for row in packed.rows] == [texts[0], texts[2]]
    for row in packed.rows:
        sine = 0.3 * np.sin(np.arange(row.samples) * 0.05)
        assert np.abs(packed.pcm(row.start, row.samples) - sine)[600:-600].max() < 0.05
