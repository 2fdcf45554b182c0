"""Bundles: what is damaged, missing or unknown is named before anything is spoken."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from models.bundle import BundleError, load, read_manifest
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import SpeechError


@pytest.fixture
def copy(tiny_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "bundle.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def read(folder: Path) -> None:
    load(folder, torch.device("cpu"), torch.float32)


def test_a_folder_without_manifest(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"there is no bundle\.json"):
        read(tmp_path)


def test_a_damaged_file(copy: Path) -> None:
    path = copy / "target.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(BundleError, match=r"target\.safetensors differs from its SHA-256"):
        read(copy)


def test_a_missing_file(copy: Path) -> None:
    (copy / "codec.safetensors").unlink()
    with pytest.raises(BundleError, match=r"codec\.safetensors is missing"):
        read(copy)


def test_no_json(copy: Path) -> None:
    (copy / "bundle.json").write_text("{")
    with pytest.raises(BundleError, match="is not JSON"):
        read(copy)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, r"format is 2; this version reads 1"),
        ({"colour": "red"}, r"unknown or missing keys: colour"),
        ({"default_gamma": "four"}, r"default_gamma is 'four'"),
        ({"voices": {}}, r"voices is \{\}"),
        ({"voices": [{"name": "x"}]}, r"voices\[0\] has unknown or missing keys: british, description"),
        ({"codec": {"codebooks": 4}}, r"bundle\.json\.codec has unknown or missing keys"),
        ({"default_drafter": "magic"}, r"default_drafter is 'magic'"),
        ({"caps": [1]}, r"caps has 1 entries"),
        ({"medusa": {"width": 16, "offsets": 6}}, r"medusa\.width is 16; the target's is 32"),
        ({"early_exit": {"width": 32, "layers": 2, "hidden": 8}}, r"layers 2; allowed: width 32, layers below 2"),
        ({"medusa": {"width": 32, "offsets": 0}}, r"medusa: offsets is 0; allowed: a whole number from 1"),
    ],
)
def test_a_wrong_manifest(copy: Path, changes: dict[str, Any], message: str) -> None:
    edit(copy, **changes)
    with pytest.raises(BundleError, match=message):
        read_manifest(copy)


def test_a_manifest_from_before_a_field_was_known(copy: Path) -> None:
    whole, path = read_manifest(copy), copy / "bundle.json"
    data = json.loads(path.read_text())
    for config in (data["target"], data["drafters"]["model"]):
        for name in ("head_dim", "qkv_bias", "qk_norm", "norm_eps"):
            del config["transformer"][name]
    path.write_text(json.dumps(data))
    assert read_manifest(copy) == whole


@pytest.mark.parametrize("name", ["early-exit", "medusa"])
def test_a_bundle_without_a_drafter_loads_and_says_what_it_has(copy: Path, name: str) -> None:
    """Also one from before the drafter was known."""
    path = copy / "bundle.json"
    data = json.loads(path.read_text())
    del data[name.replace("-", "_")], data["files"][f"drafter-{name}.safetensors"]
    path.write_text(json.dumps(data))
    (copy / f"drafter-{name}.safetensors").unlink()
    synthesizer = Synthesizer.load(copy)
    with pytest.raises(SpeechError, match=rf"drafter is '{name}'; this bundle has: none, model"):
        synthesizer.speak("Hello.", drafter=name)  # type: ignore[arg-type]
    assert synthesizer.speak("Hello.", drafter="model").stats.tokens
    synthesizer.close()


def test_weights_of_another_symbol_table(copy: Path) -> None:
    edit(copy, symbols_sha256="0" * 64)
    with pytest.raises(BundleError, match="another table of phoneme symbols"):
        Synthesizer.load(copy)


def test_every_file_states_size_licence_and_hash(tiny_bundle: Path) -> None:
    for name, entry in read_manifest(tiny_bundle).files.items():
        assert entry.bytes == (tiny_bundle / name).stat().st_size
        assert entry.license
        assert len(entry.sha256) == 64
