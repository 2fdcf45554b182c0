"""A bundle: a folder with weights, voices and ``bundle.json``, which names the size, licence and SHA-256 of every file.

Reads and writes bundles; knows the networks' shapes, not how they are used.
"""

from __future__ import annotations

import hashlib
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from models.codec.codec import Codec, CodecConfig, CodecState, NeuralCodec, after_silence
from models.codec.packed import PackedCodec
from models.exit_head import ExitConfig, ExitHead, PackedExit
from models.medusa import MedusaConfig, MedusaHeads, PackedMedusa
from models.speech_lm import SpeechLm, SpeechLmConfig
from models.transformer_config import MAY_MISS

FORMAT = 1
MANIFEST = "bundle.json"

T = TypeVar("T")


class BundleError(ValueError):
    """A bundle that cannot be used; the message names the file or the field."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of the bundle."""

    sha256: str
    bytes: int
    license: str


@dataclass(frozen=True, slots=True)
class VoiceEntry:
    """One voice; its row in the models' voice tables is its place in the list."""

    name: str
    language: str  # BCP 47
    gender: str
    description: str
    british: bool  # phonemised by British rules


@dataclass(frozen=True, slots=True)
class SamplingEntry:
    """Default sampling of the bundle; see ``tts_spec.speculate.sampling``."""

    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float


@dataclass(frozen=True, slots=True)
class Manifest:
    """``bundle.json``."""

    format: int
    name: str
    origin: str  # where the weights come from, in words
    symbols_sha256: str  # of the symbol table the weights were trained with
    codec: CodecConfig
    target: SpeechLmConfig
    drafters: dict[str, SpeechLmConfig]  # language models that draft
    default_drafter: str
    default_gamma: int
    sampling: SamplingEntry
    voices: list[VoiceEntry]
    caps: list[int]  # most frames of a phoneme, by symbol id
    files: dict[str, FileEntry]
    medusa: MedusaConfig | None = field(default=None, metadata=MAY_MISS)  # heads that draft
    early_exit: ExitConfig | None = field(
        default=None, metadata=MAY_MISS
    )  # the exit by which the target drafts for itself

    @property
    def drafter_names(self) -> tuple[str, ...]:
        """Every drafter this bundle has the weights for."""
        heads = {"early-exit": self.early_exit, "medusa": self.medusa}
        return ("none", *self.drafters, *(name for name, config in heads.items() if config is not None), "lookahead")

    @property
    def taps(self) -> tuple[int, ...]:
        """Layers of the target whose residuals a drafter is conditioned on."""
        conditions = [config.condition for config in self.drafters.values() if config.condition is not None]
        return conditions[0].taps if conditions else ()


@dataclass(frozen=True, slots=True)
class Bundle:
    """A loaded bundle, all modules in evaluation mode on one device."""

    manifest: Manifest
    codec: Codec[Any]
    silence: CodecState  # of one stream of the codec, before it speaks
    target: SpeechLm
    drafters: Mapping[str, SpeechLm]
    device: torch.device
    medusa: PackedMedusa | None = None
    early_exit: PackedExit | None = None


def build(cls: type[T], data: Any, where: str) -> T:
    """A dataclass from JSON data, checked: unknown and missing keys and wrong types are BundleErrors that name the place."""
    origin, arguments = typing.get_origin(cls), typing.get_args(cls)
    if is_dataclass(cls):
        if not isinstance(data, dict):
            raise BundleError(f"{where} is {data!r}; it must be an object")
        hints = typing.get_type_hints(cls)
        names = {item.name for item in fields(cls)}
        may_miss = {item.name for item in fields(cls) if item.metadata.get("may_miss")}
        if wrong := (names ^ set(data)) - may_miss:
            listed = ", ".join(sorted(wrong))
            raise BundleError(f"{where} has unknown or missing keys: {listed}; allowed: {', '.join(sorted(names))}")
        try:
            return typing.cast(T, cls(**{name: build(hints[name], data[name], f"{where}.{name}") for name in data}))
        except BundleError:
            raise
        except ValueError as error:
            raise BundleError(f"{where}: {error}") from error
    if origin is list and isinstance(data, list):
        return typing.cast(T, [build(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(data)])
    if origin is dict and isinstance(data, dict):
        return typing.cast(T, {key: build(arguments[1], item, f"{where}.{key}") for key, item in data.items()})
    if origin is types.UnionType and type(None) in arguments:
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return typing.cast(T, None if data is None else build(inner, data, where))
    if origin is tuple and isinstance(data, list):
        return typing.cast(T, tuple(build(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(data)))
    if cls is float and type(data) is int:
        return typing.cast(T, float(data))
    if not isinstance(cls, types.GenericAlias) and type(data) is cls:
        return data
    raise BundleError(f"{where} is {data!r}; it must be of type {cls}")


def read_manifest(folder: Path) -> Manifest:
    """``bundle.json`` of ``folder``. Raises BundleError when it is missing, broken or of another format."""
    path = folder / MANIFEST
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        raise BundleError(f"{folder} is no bundle: there is no {MANIFEST} in it") from None
    except json.JSONDecodeError as error:
        raise BundleError(f"{path} is not JSON: {error}") from error
    if isinstance(data, dict) and data.get("format") != FORMAT:
        raise BundleError(f"{path}: format is {data.get('format')!r}; this version reads {FORMAT}")
    manifest = build(Manifest, data, MANIFEST)
    if manifest.default_drafter not in manifest.drafter_names:
        drafters = ", ".join(manifest.drafter_names)
        raise BundleError(f"{path}: default_drafter is {manifest.default_drafter!r}; allowed: {drafters}")
    conditions = {config.condition for config in manifest.drafters.values() if config.condition is not None}
    transformer = manifest.target.transformer
    for condition in conditions:
        if len(conditions) > 1 or condition.width != transformer.width or max(condition.taps) > transformer.layers:
            raise BundleError(f"{path}: drafters' conditions are {conditions}; allowed: one, of states the target has")
    if manifest.medusa is not None and manifest.medusa.width != transformer.width:
        raise BundleError(f"{path}: medusa.width is {manifest.medusa.width}; the target's is {transformer.width}")
    leaves = manifest.early_exit
    if leaves is not None and (leaves.width != transformer.width or leaves.layers >= transformer.layers):
        allowed = f"width {transformer.width}, layers below {transformer.layers}"
        raise BundleError(f"{path}: early_exit has width {leaves.width}, layers {leaves.layers}; allowed: {allowed}")
    if len(manifest.caps) != manifest.target.symbols:
        raise BundleError(
            f"{path}: caps has {len(manifest.caps)} entries; the target has {manifest.target.symbols} symbols"
        )
    if len(manifest.voices) != manifest.target.voices:
        raise BundleError(f"{path}: voices has {len(manifest.voices)} entries; the target has {manifest.target.voices}")
    return manifest


def load(folder: Path, device: torch.device, target_dtype: torch.dtype) -> Bundle:
    """Load every network, on the CPU packed in ``target_dtype``; elsewhere the codec is float32. Checks every file's SHA-256.

    Raises BundleError for a file that is missing or differs from the manifest.
    """
    manifest = read_manifest(folder)
    for name, entry in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise BundleError(f"{path} is missing")
        if sha256(path) != entry.sha256:
            raise BundleError(f"{path} differs from its SHA-256 in {MANIFEST}: damaged or replaced")

    def module(made: nn.Module, name: str, dtype: torch.dtype) -> None:
        made.load_state_dict(load_file(folder / f"{name}.safetensors"))
        made.to(device=device, dtype=dtype).eval().requires_grad_(False)

    neural = NeuralCodec(manifest.codec)
    module(neural, "codec", torch.float32)
    codec: Codec[Any] = PackedCodec(neural, target_dtype) if device.type == "cpu" else neural
    target = SpeechLm(manifest.target)
    module(target, "target", target_dtype)
    drafters = {}
    for name, config in manifest.drafters.items():
        drafters[name] = SpeechLm(config)
        module(drafters[name], f"drafter-{name}", target_dtype)
    for lm in (target, *drafters.values()):
        lm.packed()  # a seventh of a second that the first stream need not wait
    medusa, early_exit = None, None
    if manifest.medusa is not None:
        heads = MedusaHeads(manifest.medusa)
        module(heads, "drafter-medusa", target_dtype)
        medusa = PackedMedusa(heads, target)
    if manifest.early_exit is not None:
        head = ExitHead(manifest.early_exit)
        module(head, "drafter-early-exit", target_dtype)
        early_exit = PackedExit(head, target)
    return Bundle(manifest, codec, after_silence(codec, device), target, drafters, device, medusa, early_exit)


def save(folder: Path, manifest: Manifest, modules: Mapping[str, nn.Module], license: str) -> None:
    """Write ``modules`` as bfloat16 safetensors and the manifest, its ``files`` filled in."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, made in modules.items():
        path = folder / f"{name}.safetensors"
        tensors = {
            key: value.detach().to(torch.bfloat16 if value.is_floating_point() else value.dtype).contiguous()
            for key, value in made.state_dict().items()
        }
        save_file(tensors, path)
        files[path.name] = asdict(FileEntry(sha256(path), path.stat().st_size, license))
    data = asdict(manifest) | {"files": files}
    (folder / MANIFEST).write_text(json.dumps(data, indent=1) + "\n")


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
