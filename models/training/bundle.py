"""Packs trained checkpoints into a bundle.

    python -m models.training.bundle PACKED CODEC_CKPT TARGET_CKPT DRAFTERS_CKPT... OUT

Caps of phonemes come from the corpus: half as long again as the longest seen, at least 12 frames.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import typer

from models.bundle import FORMAT, Manifest, SamplingEntry, VoiceEntry, save
from models.exit_head import ExitHead
from models.medusa import MedusaHeads
from models.speech_lm import SpeechLm
from models.training.dataset import Row, read_rows
from models.training.drafter import load_drafters, load_target
from models.training.encode import load_codec
from models.training.target import VOICES
from tts_spec.text.symbols import START, STOP, TABLE_SIZE, symbol_ids, table_hash

LICENSE = "Apache-2.0"
ORIGIN = (
    "Trained in models/training on speech synthesised by Kokoro-82M (Apache-2.0) from texts of WordNet, State of the Union addresses, "
    "SQLite and PostgreSQL documentation and composed sentences"
)
ENTRIES = {
    "af_heart": VoiceEntry("heart", "en-US", "female", "Warm American voice", british=False),
    "am_michael": VoiceEntry("michael", "en-US", "male", "Calm American voice", british=False),
    "bf_emma": VoiceEntry("emma", "en-GB", "female", "Clear British voice", british=True),
    "am_fenrir": VoiceEntry("fenrir", "en-US", "male", "Deep American voice", british=False),
    "bm_fable": VoiceEntry("fable", "en-GB", "male", "British storyteller", british=True),
    "af_bella": VoiceEntry("bella", "en-US", "female", "Lively American voice", british=False),
    "bm_george": VoiceEntry("george", "en-GB", "male", "Measured British voice", british=True),
}


def caps(rows: Sequence[Row]) -> list[int]:
    """Most frames of each symbol id at speed 1."""
    longest = [0.0] * TABLE_SIZE
    for row in rows:
        ids = [START, *symbol_ids(row.phonemes), STOP]
        for symbol, frames in zip(ids, row.durations, strict=True):
            longest[symbol] = max(longest[symbol], frames * row.speed)
    longest[START] = 12  # the pad is cut in training
    return [max(12, math.ceil(1.5 * frames)) for frames in longest]


def bundle(
    packed: Path,
    codec: Path,
    target: Path,
    drafters: list[Path],
    out: Path,
    default_drafter: str = "model",
    gamma: int = 8,
    temperature: float = 0.5,
) -> None:
    """Write the bundle. Of a kind that several checkpoints of drafters have, the last one's is taken."""
    large = load_target(target)
    small = {kind: each for path in drafters for kind, each in load_drafters(path, large).items()}
    whole = load_codec(codec)
    manifest = Manifest(
        format=FORMAT,
        name="starter",
        origin=ORIGIN,
        symbols_sha256=table_hash(),
        codec=whole.config,
        target=large.config,
        drafters={name: made.config for name, made in small.items() if isinstance(made, SpeechLm)},
        default_drafter=default_drafter,
        default_gamma=gamma,
        sampling=SamplingEntry(temperature=temperature, top_k=0, top_p=1.0, repetition_penalty=1.0),
        voices=[ENTRIES[name] for name in VOICES[: large.config.voices]],
        caps=caps(read_rows(packed)),
        files={},
        medusa=next((made.config for made in small.values() if isinstance(made, MedusaHeads)), None),
        early_exit=next((made.config for made in small.values() if isinstance(made, ExitHead)), None),
    )
    modules = {"codec": whole, "target": large, **{f"drafter-{name}": made for name, made in small.items()}}
    save(out, manifest, modules, LICENSE)


if __name__ == "__main__":
    typer.run(bundle)
