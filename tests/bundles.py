"""A small bundle with random weights: every path of the product without training."""

from __future__ import annotations

from pathlib import Path

import torch

from models.bundle import Manifest, SamplingEntry, VoiceEntry, save
from models.codec.codec import CodecConfig, NeuralCodec
from models.codec.decoder import DecoderConfig
from models.codec.encoder import EncoderConfig
from models.exit_head import ExitConfig, ExitHead
from models.medusa import MedusaConfig, MedusaHeads
from models.speech_lm import SpeechLm, SpeechLmConfig
from models.transformer_config import TransformerConfig
from tts_spec.text.symbols import TABLE_SIZE, table_hash


def write_tiny_bundle(folder: Path) -> Path:
    """Write the bundle to ``folder`` and return it. Its speech is noise, but of the right form and length."""
    torch.manual_seed(7)
    codec_config = CodecConfig(
        encoder=EncoderConfig(width=16, fast_blocks=1, slow_blocks=1),
        decoder=DecoderConfig(input_width=16, width=16, slow_blocks=1, pitch_blocks=1, filter_blocks=1),
    )

    def lm(width: int, layers: int) -> SpeechLm:
        transformer = TransformerConfig(width=width, layers=layers, heads=2, kv_heads=1, hidden=2 * width, window=64)
        made = SpeechLm(SpeechLmConfig(symbols=TABLE_SIZE, voices=2, transformer=transformer))
        with torch.no_grad():
            for parameter in made.parameters():
                if parameter.ndim == 2:
                    parameter.mul_(4.0)  # far enough from flat that drafts are sometimes right
        return made

    target, drafter = lm(32, 2), lm(16, 1)
    medusa, early_exit = MedusaHeads(MedusaConfig(32)), ExitHead(ExitConfig(32, layers=1, hidden=32))
    for weight in (*medusa.matrices, *early_exit.matrices):
        torch.nn.init.normal_(weight, std=0.2)
    manifest = Manifest(
        format=1,
        name="tiny",
        origin="random weights for tests",
        symbols_sha256=table_hash(),
        codec=codec_config,
        target=target.config,
        drafters={"model": drafter.config},
        default_drafter="model",
        default_gamma=4,
        sampling=SamplingEntry(temperature=0.8, top_k=0, top_p=1.0, repetition_penalty=1.0),
        voices=[
            VoiceEntry("one", "en-US", "female", "", british=False),
            VoiceEntry("two", "en-GB", "male", "", british=True),
        ],
        caps=[8] * TABLE_SIZE,
        files={},
        medusa=medusa.config,
        early_exit=early_exit.config,
    )
    modules = {
        "codec": NeuralCodec(codec_config),
        "target": target,
        "drafter-model": drafter,
        "drafter-medusa": medusa,
        "drafter-early-exit": early_exit,
    }
    save(folder, manifest, modules, "CC0-1.0")
    return folder
