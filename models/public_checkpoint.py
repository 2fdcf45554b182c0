"""Public checkpoints: folders of config.json and safetensors of the Llama, Qwen2 and Qwen3 class, read into and written from our layers.

Ours fuse what theirs keep apart (q, k, v; gate, up). Knows names and shapes; knows no tokenizer. What our transformer does not compute
(rotary scaling, sliding windows, other activations, biases elsewhere) is refused by name, never ignored.
Source: modeling_llama, modeling_qwen2, modeling_qwen3 of transformers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from models.causal_lm import CausalLm
from models.transformer_config import TransformerConfig

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
MODEL_TYPES = ("llama", "qwen2", "qwen3")
POSITIONS = 4096  # default length: the cache is preallocated, and a pass reads all of it
REQUIRED = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
    "rms_norm_eps",
)

OUTER = {"tokens": "model.embed_tokens", "transformer.norm": "model.norm", "head": "lm_head"}
INNER = {
    "attention_norm": ("input_layernorm",),
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.q_norm": ("self_attn.q_norm",),
    "attention.k_norm": ("self_attn.k_norm",),
    "attention.out": ("self_attn.o_proj",),
    "mlp_norm": ("post_attention_layernorm",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}


class CheckpointError(ValueError):
    """A checkpoint that cannot be read; the message names the file, field or tensor."""


def load_checkpoint(folder: Path, dtype: torch.dtype = torch.float32, positions: int | None = None) -> CausalLm:
    """The model in ``folder``, in evaluation mode, packed.

    Args:
        positions: most positions of a stream; None = the checkpoint's own, at most POSITIONS.

    Raises CheckpointError for a missing file or tensor, and for what our transformer does not compute.
    """
    data = _read_config(folder)
    config = _transformer_config(data, positions)
    lm = CausalLm(config, data["vocab_size"], tied=bool(data.get("tie_word_embeddings", False)))
    theirs = _read_tensors(folder)
    state: dict[str, Tensor] = {}
    for name in lm.state_dict():
        sources = ["model.embed_tokens.weight"] if lm.tied and name == "head.weight" else _their_names(name)
        missing = [source for source in sources if source not in theirs]
        if missing:
            raise CheckpointError(f"{folder} has no tensor {missing[0]}")
        state[name] = torch.cat([theirs[source] for source in sources])
    used = {source for name in state for source in _their_names(name)}
    extra = sorted(name for name in set(theirs) - used if not name.endswith("rotary_emb.inv_freq"))
    if extra:
        raise CheckpointError(f"{folder} has a tensor {extra[0]}, which this model does not compute with")
    try:
        lm.load_state_dict(state)
    except RuntimeError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    lm.to(dtype).eval().requires_grad_(False)
    lm.pack()
    return lm


def save_checkpoint(folder: Path, lm: CausalLm) -> None:
    """Write ``lm`` as a Llama checkpoint, in its own dtype. Raises CheckpointError for what Llama does not have."""
    config = lm.config
    if config.qkv_bias or config.qk_norm:
        raise CheckpointError("qkv_bias and qk_norm are not of the Llama class")
    kv_width = config.kv_heads * config.head_width
    sizes = {"qkv": [config.heads * config.head_width, kv_width, kv_width], "gate_up": [config.hidden] * 2}
    tensors: dict[str, Tensor] = {}
    for name, weight in lm.state_dict().items():
        if lm.tied and name == "head.weight":
            continue
        names = _their_names(name)
        parts = weight.split(sizes[name.split(".")[-2]]) if len(names) > 1 else [weight]
        tensors |= {each: part.clone().contiguous() for each, part in zip(names, parts, strict=True)}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    data = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": lm.tokens.num_embeddings,
        "hidden_size": config.width,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_width,
        "max_position_embeddings": config.window,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_base,
        "tie_word_embeddings": lm.tied,
        "hidden_act": "silu",
        "bos_token_id": None,
        "eos_token_id": None,
        "torch_dtype": str(lm.tokens.weight.dtype).removeprefix("torch."),
    }
    (folder / CONFIG).write_text(json.dumps(data, indent=1) + "\n")


def _their_names(name: str) -> list[str]:
    """The tensors that, one below the other, are our parameter ``name``."""
    module, _, kind = name.rpartition(".")
    if module in OUTER:
        return [f"{OUTER[module]}.{kind}"]
    _, _, layer, part = module.split(".", 3)  # transformer.blocks.<layer>.<part>
    return [f"model.layers.{layer}.{theirs}.{kind}" for theirs in INNER[part]]


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        raise CheckpointError(f"{folder} is no checkpoint: there is no {CONFIG} in it") from None
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} is no JSON object")
    for name in REQUIRED:
        if name not in data:
            raise CheckpointError(f"{path} has no {name}")
    return data


def _transformer_config(data: dict[str, Any], positions: int | None) -> TransformerConfig:
    kind = data.get("model_type")
    rope = data.get("rope_parameters") or data.get("rope_scaling") or {}
    demands = (
        ("model_type", kind, kind in MODEL_TYPES, ", ".join(MODEL_TYPES)),
        ("hidden_act", data.get("hidden_act"), data.get("hidden_act") == "silu", "silu"),
        (
            "rope_type",
            rope.get("rope_type"),
            rope.get("rope_type", rope.get("type", "default")) == "default",
            "default",
        ),
        ("partial_rotary_factor", rope.get("partial_rotary_factor"), rope.get("partial_rotary_factor", 1) == 1, "1"),
        ("attention_bias", data.get("attention_bias"), not data.get("attention_bias"), "false"),
        ("mlp_bias", data.get("mlp_bias"), not data.get("mlp_bias"), "false"),
        ("use_sliding_window", data.get("use_sliding_window"), not data.get("use_sliding_window"), "false"),
    )
    for name, value, good, allowed in demands:
        if not good:
            raise CheckpointError(f"{name} is {value!r}; allowed: {allowed}")
    try:
        return TransformerConfig(
            width=data["hidden_size"],
            layers=data["num_hidden_layers"],
            heads=data["num_attention_heads"],
            kv_heads=data.get("num_key_value_heads") or data["num_attention_heads"],
            hidden=data["intermediate_size"],
            window=positions if positions is not None else min(data["max_position_embeddings"], POSITIONS),
            rope_base=float(rope.get("rope_theta", data.get("rope_theta", 10_000.0))),
            head_dim=data.get("head_dim") or 0,
            qkv_bias=kind == "qwen2",
            qk_norm=kind == "qwen3",
            norm_eps=data["rms_norm_eps"],
        )
    except ValueError as error:
        raise CheckpointError(f"{CONFIG}: {error}") from error


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    names = [WEIGHTS]
    if (folder / INDEX).is_file():
        names = sorted(set(json.loads((folder / INDEX).read_text())["weight_map"].values()))
    tensors: dict[str, Tensor] = {}
    for name in names:
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder / name} is missing")
        tensors |= load_file(folder / name)
    return tensors
