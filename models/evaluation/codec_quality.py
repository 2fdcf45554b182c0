"""How the codec alone sounds: teacher clips of held-out sentences, encoded and decoded again.

    python -m models.evaluation.codec_quality CHECKPOINT --n 20

CHECKPOINT is one of the codec's training or a bundle folder. The last line of output is one JSON object. Knows no language model.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
import typer

from models.bundle import load
from models.evaluation.report import score_clip, summarise
from models.evaluation.sentences import held_out_sentences
from models.training.dataset import UNIT
from models.training.encode import load_codec
from models.training.target import VOICES
from models.training.teacher import Teacher, phonemise


def main(checkpoint: Path, n: int = 20, save_to: Path | None = None) -> None:
    """Score ``n`` clips, voices in turn; with ``save_to`` also write both versions of the first ten as WAV."""
    codec = load(checkpoint, torch.device("cpu"), torch.float32).codec if checkpoint.is_dir() else load_codec(checkpoint)
    teacher = Teacher.load()
    real, made = [], []
    for index, sentence in enumerate(held_out_sentences()[:n]):
        voice = VOICES[index % len(VOICES)]
        pcm = teacher.speak(phonemise(sentence, voice), voice).pcm
        pcm = np.pad(pcm, (0, -len(pcm) % UNIT))
        again = codec.decode(codec.encode(torch.from_numpy(pcm)[None]))[0].numpy()
        real.append(score_clip(pcm, codec.sample_rate, sentence))
        made.append(score_clip(again, codec.sample_rate, sentence))
        if save_to is not None and index < 10:
            import soundfile

            save_to.mkdir(parents=True, exist_ok=True)
            soundfile.write(save_to / f"{index}-teacher.wav", pcm, codec.sample_rate)
            soundfile.write(save_to / f"{index}-codec.wav", again, codec.sample_rate)
    print(json.dumps({"teacher": summarise(real).as_dict(), "codec": summarise(made).as_dict()}))


if __name__ == "__main__":
    typer.run(main)
