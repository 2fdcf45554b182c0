"""Ours and transformers run the same weights on the same plain stream: greedily all say the same."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from models.lm_stream import LmBatch
from models.speech_lm import OFFSETS
from tests.models.test_lm_stream import woven
from tests.speculate.streams import VOCABULARY, small_lm
from tts_spec.bench import peers
from tts_spec.bench.peers import PlainModel, PlainStream, joint_lm
from tts_spec.cli import app
from tts_spec.speculate.sampling import SamplingOptions
from tts_spec.speculate.script import Vocabulary
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import SpeechError

TEXTS = ("Hi.", "A day in the field, and another one.")
STARTER = Vocabulary(codebooks=4, codebook_size=1024)


def contenders(synthesizer: Synthesizer, folder: Path) -> dict[str, peers.Generate]:
    bundle = synthesizer.bundle
    return peers._contenders(bundle.target, bundle.drafters["model"], folder, 300, STARTER, 3)


def test_the_joint_model_is_the_speech_model_where_nothing_is_lost() -> None:
    """One phoneme of one voice, and the tables the plain stream does not have all 0."""
    lm = copy.deepcopy(small_lm())
    with torch.no_grad():
        lm.counts.weight.zero_()
        lm.beside.weight.zero_()
        around = lm.around.weight.view(len(OFFSETS), lm.config.symbols, -1)
        around[[offset != 0 for offset in OFFSETS]] = 0
    inputs = woven(random.Random(1), 1, longest=7)
    speech = LmBatch(lm, 1).open([1.0, 0.0], 1.0)
    speech.extend([[9, 5, 9, 9, 9, 9, 9, 9]])
    lm.speed.weight.detach().normal_()  # at the teacher's pace it does not count
    expected = speech.forward(inputs, 0)[:, : VOCABULARY.codebook_size]
    plain = PlainStream(PlainModel(packed(joint_lm(lm, 64)), VOCABULARY), [VOCABULARY.end + 1 + 5])
    logits = plain.forward(inputs, 0)
    np.testing.assert_allclose(logits[:, : VOCABULARY.codebook_size], expected, atol=1e-4, rtol=0)
    assert np.isneginf(logits[:, VOCABULARY.codebook_size :]).all()


def packed(lm: peers.CausalLm) -> peers.CausalLm:
    lm.pack()
    return lm


@pytest.mark.parametrize("text", TEXTS)
def test_greedily_all_say_the_same(tiny: Synthesizer, tmp_path: Path, text: str) -> None:
    prompt = peers._prompt(tiny, text)
    assert min(prompt) > STARTER.end
    said = {
        name: generate(prompt, 15, SamplingOptions(0.0), 0) for name, generate in contenders(tiny, tmp_path).items()
    }
    tokens, passes = said["transformers plain"]
    assert passes == len(tokens) == 15 * STARTER.codebooks
    for name, (others, fewer) in said.items():
        assert others == tokens, name
        assert fewer == passes if "plain" in name else fewer <= passes


def test_sampled_tokens_are_of_the_codebook_that_is_due(tiny: Synthesizer, tmp_path: Path) -> None:
    prompt = peers._prompt(tiny, TEXTS[0])
    said = []
    for name, generate in contenders(tiny, tmp_path).items():
        tokens, _ = generate(prompt, 6, SamplingOptions(1.0, top_k=50, top_p=0.95), 3)
        books = [token // STARTER.codebook_size for token in tokens]
        assert books == list(range(STARTER.codebooks)) * 6, name
        said.append(tokens)
    assert said[3] == said[4]  # ours, plain and drafted, as in coupled mode always
    assert said[0] != said[3]


def test_the_command_reports_every_contender(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "held_out_sentences", lambda: TEXTS)
    monkeypatch.setattr(peers.run, "__defaults__", (5, None))  # frames
    arguments = ["bench", "speculation", "--peers", "--sentences", "2", "--repeats", "2", "--bundle", str(tiny_bundle)]
    result = CliRunner().invoke(app, [*arguments, "--dtype", "float32", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout.splitlines()[-1])
    assert report["greedy_equal"] is True
    assert (report["sentences"], report["frames"], report["dtype"]) == (2, 5, "float32")
    rows = {row["contender"]: row for row in report["rows"]}
    assert list(rows) == [
        "transformers plain",
        "transformers assisted",
        "transformers assisted, 4 drafts",
        "ours plain",
        "ours, 4 drafts",
    ]
    assert rows["transformers plain"]["ratio"] == 1
    assert all((row["tau"] == 1) == (name.endswith("plain")) for name, row in rows.items())


def test_a_bundle_without_the_drafter_is_refused(tiny: Synthesizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "DRAFTER", "other")
    with pytest.raises(SpeechError, match="drafter 'other'"):
        peers.run(tiny, 1, 1, peers.Console(quiet=True))
