"""Second phase of the codec: the decoder against discriminators, encoder and quantiser frozen, so that tokens stay valid.

    python -m models.training.codec_adversarial PACKED CODES.npz CODEC_CHECKPOINT CHECKPOINT --steps 10000

The checkpoint holds the whole codec under ``codec`` (its decoder the running mean of the trained one) beside what training needs.
"""

from __future__ import annotations

import copy
import random
from pathlib import Path

import numpy as np
import torch
import typer

from models.training.codec import frame_f0, pitch_losses
from models.training.dataset import UNIT, PackedCorpus
from models.training.discriminators import Discriminators, discriminator_loss, generator_losses
from models.training.encode import load_codec
from models.training.loop import Run, warmup_cosine
from models.training.spectral_loss import SpectralLoss

FRAMES = 24  # of a crop
CONTEXT = 8  # of them before the part that is judged: the decoder's memory fills there
MEAN_DECAY = 0.999


def train(
    packed: Path,
    codes_file: Path,
    codec_checkpoint: Path,
    checkpoint: Path,
    steps: int = 10_000,
    batch: int = 16,
    rate: float = 3e-4,
    seed: int = 1,
) -> None:
    """Train until ``steps``; resumes from ``checkpoint``."""
    torch.set_flush_denormal(True)
    torch.manual_seed(seed)
    corpus = PackedCorpus(packed)
    codes = np.load(codes_file)["codes"]  # [units, K]
    codec = load_codec(codec_checkpoint)
    codec.requires_grad_(False)
    mean = codec.decoder
    decoder = copy.deepcopy(mean).requires_grad_(True).train()
    judges = Discriminators()
    spectral = SpectralLoss()
    makers = torch.optim.AdamW(decoder.parameters(), lr=rate, betas=(0.8, 0.99), weight_decay=0.01)
    critics = torch.optim.AdamW(judges.parameters(), lr=rate, betas=(0.8, 0.99), weight_decay=0.01)
    parts = {"codec": codec, "decoder": decoder, "judges": judges, "makers": makers, "critics": critics}
    run = Run(checkpoint, steps, parts)
    run.resume()
    rng = random.Random(seed + run.step)
    for step in run.steps():
        for optimizer in (makers, critics):
            for group in optimizer.param_groups:
                group["lr"] = rate * warmup_cosine(step, steps, warmup=200, floor=0.1)
        units = [rng.randrange(len(codes) - FRAMES - 2) for _ in range(batch)]
        pcm = np.stack([corpus.pcm(unit * UNIT, FRAMES * UNIT) for unit in units])
        f0 = np.stack([corpus.f0(unit * UNIT, (FRAMES + 1) * UNIT) for unit in units])
        tokens = torch.from_numpy(np.stack([codes[unit : unit + FRAMES].T.astype(np.int64) for unit in units]))
        with torch.no_grad():
            x = codec.dequantize(tokens)
        with torch.autocast("cpu", torch.bfloat16):
            out = decoder(x, decoder.initial_state(batch))
        made = out.pcm[:, CONTEXT * UNIT :]
        real = torch.from_numpy(pcm)[:, CONTEXT * UNIT :]

        with torch.autocast("cpu", torch.bfloat16):
            judged = judges(torch.cat([made.detach(), real]))
        halves = [(score.chunk(2), [f.chunk(2) for f in features]) for score, features in judged]
        critic_loss = discriminator_loss(
            [(score[0], []) for score, _ in halves], [(score[1], []) for score, _ in halves]
        )
        critics.zero_grad(set_to_none=True)
        critic_loss.backward()
        torch.nn.utils.clip_grad_norm_(judges.parameters(), 1.0)
        critics.step()

        judges.requires_grad_(False)
        with torch.autocast("cpu", torch.bfloat16):
            seen = judges(made)
        adversarial, matching = generator_losses(
            seen, [(score[1], [f[1] for f in features]) for score, features in halves]
        )
        octaves, voicing = pitch_losses(out, frame_f0(torch.from_numpy(f0)))
        distance = spectral(made, real)
        loss = adversarial + 2 * matching + 6 * distance + octaves + 0.2 * voicing
        makers.zero_grad(set_to_none=True)
        loss.backward()
        judges.requires_grad_(True)
        norm = torch.nn.utils.clip_grad_norm_(decoder.parameters(), 5.0)
        makers.step()

        decay = min(MEAN_DECAY, 1 - 1 / (step + 2))
        with torch.no_grad():
            for kept, new in zip(mean.parameters(), decoder.parameters(), strict=True):
                kept.lerp_(new, 1 - decay)
        run.note(spectral=distance.detach(), critic=critic_loss.detach(), adversarial=adversarial.detach(), norm=norm)
        run.note(matching=matching.detach(), octaves=octaves.detach(), voicing=voicing.detach())


if __name__ == "__main__":
    typer.run(train)
