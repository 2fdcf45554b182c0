"""How the codec alone sounds: teacher clips of held-out sentences, encoded and decoded again; WER and DistillMOS of both.

    python -m models.evaluation.codec_quality CHECKPOINT --n 20

CHECKPOINT is one of the codec's training, of which ``--books`` takes the first few codebooks only, or a bundle folder, whose voices are
heard. The last line of output is one JSON object. Knows no language model.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer

from models.bundle import load
from models.codec.codec import Codec
from models.evaluation.mos import distill_mos
from models.evaluation.sentences import held_out_sentences
from models.evaluation.transcribe import Errors, transcribe, wer
from models.training.dataset import UNIT
from models.training.encode import load_codec
from models.training.target import VOICES
from models.training.teacher import Teacher, phonemise
from tts_spec.synthesizer import DTYPES


def main(
    checkpoint: Path, n: int = 20, save_to: Path | None = None, dtype: str = "bfloat16", books: int | None = None
) -> None:
    """Score ``n`` clips, voices in turn; with ``save_to`` also write both versions of the first ten as WAV. ``dtype``: of a bundle,
    float32 or bfloat16, as it is used where the processor has it. ``books``: of a checkpoint, how many of its codebooks."""
    codec: Codec[Any]
    voices: tuple[str, ...] = VOICES
    if checkpoint.is_dir():
        if books is not None:
            raise typer.BadParameter("books is for a checkpoint; a bundle is heard as it is")
        bundle = load(checkpoint, torch.device("cpu"), DTYPES[dtype])
        codec, voices = bundle.codec, voices[: len(bundle.manifest.voices)]
    else:
        codec = whole = load_codec(checkpoint)
        if books is not None and not 1 <= books <= whole.codebooks:
            raise typer.BadParameter(f"books is {books}; allowed: 1 to {whole.codebooks}")
        whole.codebooks = books or whole.codebooks
        whole.quantizer.layers = whole.quantizer.layers[: whole.codebooks]
    teacher = Teacher.load()
    words = {"teacher": Errors(), "codec": Errors()}
    mos: dict[str, list[float]] = {"teacher": [], "codec": []}
    for index, sentence in enumerate(held_out_sentences()[:n]):
        voice = voices[index % len(voices)]
        pcm = teacher.speak(phonemise(sentence, voice), voice).pcm
        pcm = np.pad(pcm, (0, -len(pcm) % UNIT))
        again = codec.decode(codec.encode(torch.from_numpy(pcm)[None]))[0].numpy()
        for name, sound in (("teacher", pcm), ("codec", again)):
            words[name] += wer(sentence, transcribe(sound, codec.sample_rate))
            mos[name].append(distill_mos(sound, codec.sample_rate))
        if save_to is not None and index < 10:
            import soundfile

            save_to.mkdir(parents=True, exist_ok=True)
            soundfile.write(save_to / f"{index}-teacher.wav", pcm, codec.sample_rate)
            soundfile.write(save_to / f"{index}-codec.wav", again, codec.sample_rate)
    result = {name: {"wer": words[name].rate, "distill_mos": sum(mos[name]) / n} for name in words}
    print(json.dumps({"n": n, **result}))


if __name__ == "__main__":
    typer.run(main)
