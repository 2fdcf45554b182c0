"""The voice that ships: complete, exact, and understood."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from models.bundle import read_manifest, sha256
from models.evaluation.sentences import held_out_sentences
from models.evaluation.transcribe import Errors, transcribe, wer
from tts_spec.audio.renderer import Renderer
from tts_spec.synthesizer import STARTER, Synthesizer


@pytest.fixture(scope="module", params=["float32", "auto"])
def starter(request: pytest.FixtureRequest) -> Iterator[Synthesizer]:
    synthesizer = Synthesizer.load(dtype=request.param, device="cpu")
    yield synthesizer
    synthesizer.close()


def test_the_bundle_is_whole_and_small() -> None:
    manifest = read_manifest(STARTER)
    files = {path.name for path in STARTER.iterdir()} - {"bundle.json"}
    assert files == set(manifest.files)
    assert all(sha256(STARTER / name) == entry.sha256 for name, entry in manifest.files.items())
    assert sum(path.stat().st_size for path in STARTER.iterdir()) <= 80_000_000
    assert len(manifest.voices) >= 5


@pytest.mark.parametrize("temperature", [0.0, None, 1.0])
def test_speculation_says_what_plain_decoding_says(starter: Synthesizer, temperature: float | None) -> None:
    voices = [voice.name for voice in starter.voices]
    for seed, text in enumerate(("Good morning.", "Is it $5?")):
        voice = voices[seed % len(voices)]
        plain = starter.speak(text, seed=seed, voice=voice, drafter="none", temperature=temperature)
        for gamma in (2, 7):
            drafted = starter.speak(text, seed=seed, voice=voice, drafter="model", gamma=gamma, temperature=temperature)
            assert drafted.stats.token_hash == plain.stats.token_hash
            assert drafted.stats.target_passes < 0.8 * plain.stats.target_passes


def test_speech_has_a_plausible_length_and_level(starter: Synthesizer) -> None:
    speech = starter.speak("The quick brown fox jumps over the lazy dog.")
    assert 1.8 < speech.stats.audio_s < 5
    level = np.sqrt(np.mean(np.square(speech.pcm)))
    assert 0.01 < level < 0.3
    assert np.mean(np.abs(speech.pcm) >= 1.0) < 1e-3
    assert [word.text for word in speech.words][-1] == "dog"


@pytest.mark.slow
def test_words_are_understood() -> None:
    synthesizer = Synthesizer.load()
    errors = Errors()
    for index, sentence in enumerate(held_out_sentences()[:20]):
        voice = synthesizer.voices[index % len(synthesizer.voices)].name
        speech = synthesizer.speak(sentence, voice=voice, seed=index)
        errors += wer(sentence, transcribe(speech.pcm, speech.sample_rate))
    assert errors.rate <= 0.25, errors


@pytest.mark.slow
def test_after_loading_nothing_is_left_to_compile() -> None:
    """The first audio of a fresh process would wait for it (half a second even from numba's cache)."""
    code = """
import sys
from numba.core.dispatcher import Dispatcher
from tts_spec.synthesizer import Synthesizer

def compiled():
    modules = [module for name, module in sys.modules.items() if name.startswith(("models", "tts_spec"))]
    kernels = {id(k): k for module in modules for k in vars(module).values() if isinstance(k, Dispatcher)}
    return sum(len(kernel.signatures) for kernel in kernels.values())

synthesizer = Synthesizer.load()
before = compiled()
for drafter in synthesizer.bundle.manifest.drafter_names:  # auto may turn to any
    synthesizer.speak("Hello there, how are you today?", drafter=drafter)
print(before, compiled() - before)
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, added = map(int, made.stdout.split())
    assert before > 5
    assert added == 0


def test_a_stream_begins_in_silence(starter: Synthesizer) -> None:
    """The first frame of silent codes makes no sound, where a decoder without memory bursts out; and the state is nobody's."""
    codec, silence = starter.bundle.codec, starter.bundle.silence
    codes = codec.encode(torch.zeros(1, 40 * codec.frame_samples))[0, :, 10:20].T.tolist()
    first, again = (Renderer(codec, silence).frames(codes) for _ in range(2))
    assert np.abs(first).max() < 1e-3
    assert np.array_equal(first, again)
    assert np.abs(Renderer(codec, codec.initial_state(1)).frames(codes)).max() > 10 * np.abs(first).max()
