"""Checkpoints that transformers makes: the same logits through our layers, whole and step by step; what we cannot compute is refused."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from models.causal_lm import CausalLm
from models.public_checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from models.slots import MAX_ROWS
from models.transformer_config import TransformerConfig

SIZES = {
    "vocab_size": 90,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,  # far enough from 0 that every part of the model matters
    "bos_token_id": None,
    "eos_token_id": None,
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"rms_norm_eps": 1e-5}),
    "llama tied, wide heads": ("Llama", {"tie_word_embeddings": True, "head_dim": 20, "rms_norm_eps": 1e-6}),
    "llama, all heads apart": ("Llama", {"num_key_value_heads": 4}),
    "llama, other base": ("Llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}}),
    "qwen2": ("Qwen2", {}),
    "qwen2 tied": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "qwen3 tied": ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
}


def public(kind: str) -> Any:
    """Random weights; also those that start at 0 or 1."""
    name, fields = KINDS[kind]
    torch.manual_seed(3)
    model = getattr(transformers, f"{name}ForCausalLM")(getattr(transformers, f"{name}Config")(**SIZES | fields))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "norm" in key:
                parameter.uniform_(0.5, 1.5)
            elif key.endswith("bias"):
                parameter.normal_(std=0.3)
    return model.eval()


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    public("llama").save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_same_logits_whole_and_step_by_step(kind: str, tmp_path: Path) -> None:
    model = public(kind)
    model.save_pretrained(tmp_path, max_shard_size="40KB" if kind == "qwen3" else "1GB")
    lm = load_checkpoint(tmp_path)
    ids = torch.randint(SIZES["vocab_size"], (2, 100), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model(ids).logits
        assert expected.std() > 0.5
        torch.testing.assert_close(lm(ids), expected, atol=1e-4, rtol=0)
    rng = random.Random(2)
    cache, at = lm.cache(), 0
    while at < 100:
        count = rng.randint(1, min(MAX_ROWS, 100 - at))
        lm.step([5] * rng.randint(1, 4), cache)  # rejected
        cache.rewind(0, at)
        logits = lm.step(ids[0, at : at + count].tolist(), cache)
        torch.testing.assert_close(logits, expected[0, at : at + count], atol=1e-4, rtol=0)
        at += count


@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])
def test_bfloat16_weights_decode_too(kind: str, tmp_path: Path) -> None:
    """Compared with the same rounded weights in float32."""
    model = public(kind).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    lm = load_checkpoint(tmp_path, torch.bfloat16)
    ids = list(range(16))
    with torch.no_grad():
        expected = model.float()(torch.tensor([ids])).logits[0]
    difference = (lm.step(ids, lm.cache()).float() - expected).abs()
    assert difference.mean() < 0.02 * expected.std()


def test_what_we_write_transformers_reads(tmp_path: Path) -> None:
    config = TransformerConfig(width=48, layers=2, heads=4, kv_heads=2, hidden=80, window=64, head_dim=16)
    torch.manual_seed(1)
    for tied in (False, True):
        lm = CausalLm(config, 90, tied=tied)
        lm.pack()
        folder = tmp_path / str(tied)
        save_checkpoint(folder, lm)
        model, problems = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        assert not any(problems.values()), problems
        ids = torch.randint(90, (1, 40))
        with torch.no_grad():
            torch.testing.assert_close(lm(ids), model(ids).logits, atol=1e-4, rtol=0)
            torch.testing.assert_close(load_checkpoint(folder)(ids), lm(ids), atol=1e-6, rtol=0)
    with pytest.raises(CheckpointError, match="not of the Llama class"):
        save_checkpoint(tmp_path, CausalLm(TransformerConfig(qkv_bias=True, layers=1), 9))


def test_the_length_is_the_checkpoints_own_or_what_is_asked_for(llama: Path) -> None:
    assert load_checkpoint(llama).config.window == 128
    assert load_checkpoint(llama, positions=32).config.window == 32
    edit(llama, max_position_embeddings=10**6)
    assert load_checkpoint(llama).config.window == 4096


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "model_type is 'gpt2'; allowed: llama, qwen2, qwen3"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; allowed: silu"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "rope_type is 'llama3'"),
        ({"rope_parameters": None, "rope_scaling": {"type": "linear"}}, "rope_type is"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"use_sliding_window": True}, "use_sliding_window is True"),
        ({"num_key_value_heads": 3}, "kv_heads is 3"),
        ({"head_dim": 7}, "head_dim is 7"),
        ({"hidden_size": 96}, "size mismatch"),
        ({"num_hidden_layers": 4}, r"has no tensor model\.layers\.3"),
        ({"num_hidden_layers": 2}, r"has a tensor model\.layers\.2"),
        ({"model_type": "qwen2"}, r"has no tensor model\.layers\.0\.self_attn\.q_proj\.bias"),
    ],
)
def test_what_we_do_not_compute_is_refused(llama: Path, changes: dict[str, Any], message: str) -> None:
    edit(llama, **changes)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(llama)


def test_a_folder_without_its_files(llama: Path, tmp_path: Path) -> None:
    (llama / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors is missing"):
        load_checkpoint(llama)
    (llama / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="is not JSON"):
        load_checkpoint(llama)
    (llama / "config.json").write_text('{"model_type": "llama", "hidden_act": "silu"}')
    with pytest.raises(CheckpointError, match=r"config\.json has no vocab_size"):
        load_checkpoint(llama)
    with pytest.raises(CheckpointError, match=r"there is no config\.json"):
        load_checkpoint(tmp_path / "nowhere")
