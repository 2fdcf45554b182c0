"""A longer run of the target begins where a smaller one stopped: more layers and voices change nothing that it says."""

from __future__ import annotations

from pathlib import Path

import torch

from models.speech_lm import SpeechLm
from models.training.drafter import load_drafters, load_target, untrained
from models.training.target import grown, target_config, with_voices


@torch.no_grad()
def test_a_grown_target_computes_what_it_did() -> None:
    torch.manual_seed(2)
    small, large = SpeechLm(target_config(2, 3)), SpeechLm(target_config(4, 5))
    large.load_state_dict(with_voices(grown(small.state_dict(), 4), 5))
    x = torch.randn(1, 30, small.config.transformer.width)
    torch.testing.assert_close(large.transformer(x), small.transformer(x))
    weights, speed = torch.eye(3), torch.ones(3)
    known = small.speaker(weights, speed)
    torch.testing.assert_close(large.speaker(torch.eye(5)[:3], speed), known)
    # A voice that is new begins as the mean of all.
    torch.testing.assert_close(large.speaker(torch.eye(5)[3:], speed[:2]), known.mean(0, keepdim=True).expand(2, -1))


def test_checkpoints_say_how_many_layers_and_voices_they_have(tmp_path: Path) -> None:
    target, larger = SpeechLm(target_config(3, 2)), SpeechLm(target_config(3, 4))
    drafter = untrained("model", target)
    torch.save({"step": 1, "parts": {"lm": target.state_dict()}}, tmp_path / "target.pt")
    torch.save({"step": 1, "parts": {"model": drafter.state_dict()}}, tmp_path / "drafter.pt")
    assert load_target(tmp_path / "target.pt").config == target.config
    made = load_drafters(tmp_path / "drafter.pt", larger)["model"]
    assert isinstance(made, SpeechLm)
    assert made.config.voices == 4
    assert torch.equal(made.voices.weight[:2], drafter.state_dict()["voices.weight"])
