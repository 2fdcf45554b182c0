"""First phase of the codec: encoder, quantiser, decoder and pitch head together, spectral losses only.

    python -m models.training.codec PACKED CHECKPOINT --steps 4000

The second phase (decoder against discriminators, tokens frozen) is ``models.training.codec_adversarial``.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from torch import Tensor
from torch.nn import functional as F

from models.codec.codec import CodecConfig, NeuralCodec
from models.codec.decoder import DecoderOutput
from models.training.dataset import UNIT, PackedCorpus
from models.training.loop import Run, warmup_cosine
from models.training.spectral_loss import SpectralLoss


def frame_f0(f0: Tensor) -> Tensor:
    """The teacher's F0 of hops [B, J + 2] -> F0 at the centres of STFT frames [B, J]: frame j is centred between hops j+1 and j+2."""
    f0 = torch.where(f0 > 60, f0, 0.0)  # below lie only the ramps between voiced and unvoiced
    left, right = f0[:, 1:-1], f0[:, 2:]
    both = (left > 0).float() + (right > 0).float()
    return (left + right) / both.clamp(min=1)


def pitch_losses(out: DecoderOutput, f0: Tensor) -> tuple[Tensor, Tensor]:
    """(mean error in octaves where voiced, voicing cross-entropy)."""
    voiced = (f0 > 0).float()
    error = (out.log_f0 - f0.clamp(min=20.0).log2()).abs() * voiced
    return error.sum() / voiced.sum().clamp(min=1), F.binary_cross_entropy_with_logits(out.voicing, voiced)


class Reviver:
    """Replaces codes that no vector chose for a while by vectors of the current batch (Dhariwal et al. 2020)."""

    def __init__(self, codec: NeuralCodec, every: int = 25) -> None:
        self.layers: list[Any] = list(codec.quantizer.layers)  # encodec's VectorQuantization, which has no types
        self.every = every
        self.used = torch.zeros(codec.codebooks, codec.codebook_size)

    @torch.no_grad()
    def step(self, step: int, frames: Tensor, indices: Tensor) -> float:
        """``frames`` [B, D, F] before quantising, ``indices`` [K, B, F] -> mean share of codes in use since the last revival."""
        for used, index in zip(self.used, indices, strict=False):
            used += torch.bincount(index.flatten(), minlength=used.shape[0])
        share = float((self.used > 0).float().mean())
        if step % self.every == self.every - 1:
            residual = frames.transpose(1, 2)
            for layer, used in zip(self.layers, self.used, strict=True):
                book = layer._codebook
                samples = layer.project_in(residual).reshape(-1, book.embed.shape[1])
                dead = used == 0
                picked = samples[torch.randint(samples.shape[0], (int(dead.sum()),))]
                book.embed[dead] = picked
                book.embed_avg[dead] = picked
                book.cluster_size[dead] = 1.0
                chosen = layer._codebook.encode(layer.project_in(residual))
                residual = residual - layer.project_out(layer._codebook.decode(chosen))
            self.used.zero_()
        return share


def train(
    packed: Path, checkpoint: Path, steps: int = 4000, batch: int = 16, rate: float = 4e-4, seed: int = 1
) -> None:
    """Train on one-second crops of ``packed`` until ``steps``; resumes from ``checkpoint``."""
    torch.set_flush_denormal(True)  # before the thread pool starts
    torch.manual_seed(seed)
    corpus = PackedCorpus(packed)
    units = sum(row.samples for row in corpus.rows) // UNIT
    codec = NeuralCodec(CodecConfig())
    codec.train()
    spectral = SpectralLoss()
    optimizer = torch.optim.AdamW(codec.parameters(), lr=rate, betas=(0.8, 0.99), weight_decay=0.01)
    run = Run(checkpoint, steps, {"codec": codec, "optimizer": optimizer})
    run.resume()
    reviver = Reviver(codec)
    rng = random.Random(seed + run.step)
    length = 40 * UNIT
    for step in run.steps():
        for group in optimizer.param_groups:
            group["lr"] = rate * warmup_cosine(step, steps)
        starts = [rng.randrange(units - 42) * UNIT for _ in range(batch)]
        pcm = torch.from_numpy(np.stack([corpus.pcm(start, length) for start in starts]))  # [B, N]
        f0 = frame_f0(torch.from_numpy(np.stack([corpus.f0(start, length + UNIT) for start in starts])))
        books = 4 if rng.random() < 0.75 else rng.randrange(1, 4)
        with torch.autocast("cpu", torch.bfloat16):
            frames = codec.encoder(pcm)
        frames = frames.float().transpose(1, 2)
        quantized, indices, commitment = codec.quantizer(frames, books)
        taught = f0 if step < 500 or rng.random() < 0.5 else None
        with torch.autocast("cpu", torch.bfloat16):
            out = codec.decoder(quantized.transpose(1, 2), codec.initial_state(batch), taught)
        octaves, voicing = pitch_losses(out, f0)
        loss_spectral = spectral(out.pcm[:, 1200:], pcm[:, 1200:])
        loss = loss_spectral + octaves + 0.2 * voicing + 0.25 * commitment.sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(codec.parameters(), 1.0)
        optimizer.step()
        used = reviver.step(step, frames, indices)
        run.note(spectral=loss_spectral.detach(), octaves=octaves.detach(), voicing=voicing.detach(), norm=norm)
        run.note(commitment=commitment.sum().detach(), codes=used)


if __name__ == "__main__":
    typer.run(train)
