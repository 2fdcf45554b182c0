"""The corpus reader: what was written is read back, and a broken shard says what is broken."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from models.training.corpus_reader import Utterance, decode_audio, load_audio, read_corpus

UTTERANCE = Utterance(
    id=7,
    text="Hi.",
    voice="af_heart",
    speed=1.25,
    phonemes="hˈI.",
    durations=(4, 2, 0, 6, 3, 5),
    f0=np.arange(40, dtype=np.float32),
    samples=12_000,
)


def _ogg(samples: int, rate: int = 24_000) -> bytes:
    sine = 0.3 * np.sin(np.arange(samples) * 0.05).astype(np.float32)
    out = io.BytesIO()
    soundfile.write(out, sine, rate, format="OGG", subtype="OPUS")
    return out.getvalue()


def _shard(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, body in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))


def test_shards_are_read_back_in_sorted_order(tmp_path: Path) -> None:
    ogg = _ogg(12_000)
    for name, number in (("b.tar", 2), ("a.tar", 1)):
        item = replace(UTTERANCE, id=number)
        _shard(tmp_path / name, {f"{number:06}.json": item.to_json(), f"{number:06}.ogg": ogg})
    pairs = list(read_corpus(tmp_path))
    assert [utterance.id for utterance, _ in pairs] == [1, 2]
    first, sound = pairs[0]
    assert (first.text, first.voice, first.speed, first.phonemes, first.durations) == (
        UTTERANCE.text,
        UTTERANCE.voice,
        UTTERANCE.speed,
        UTTERANCE.phonemes,
        UTTERANCE.durations,
    )
    assert np.array_equal(first.f0, UTTERANCE.f0)
    pcm = load_audio(first, sound)
    assert pcm.dtype == np.float32
    assert pcm.shape == (12_000,)
    expected = 0.3 * np.sin(np.arange(12_000) * 0.05)
    assert np.corrcoef(pcm[2_000:10_000], expected[2_000:10_000])[0, 1] > 0.99


def test_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no \*\.tar"):
        list(read_corpus(tmp_path))


def test_missing_half(tmp_path: Path) -> None:
    _shard(tmp_path / "x.tar", {"000007.json": UTTERANCE.to_json()})
    with pytest.raises(ValueError, match=r"x\.tar.*missing for 000007"):
        list(read_corpus(tmp_path))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (UTTERANCE.to_json().replace(b'"samples": 12000', b'"samples": 11999'), "11999 samples"),
        (UTTERANCE.to_json().replace(b"[4, 2,", b"[4, 1, 1,"), "7 durations for 4 phonemes"),
        (UTTERANCE.to_json().replace(b'"voice"', b'"voce"'), "lacks 'voice'"),
        (b"{", r"000007\.json"),
    ],
)
def test_broken_json(tmp_path: Path, body: bytes, message: str) -> None:
    _shard(tmp_path / "x.tar", {"000007.json": body, "000007.ogg": b""})
    with pytest.raises(ValueError, match=message):
        list(read_corpus(tmp_path))


def test_cut_shard(tmp_path: Path) -> None:
    _shard(tmp_path / "x.tar", {"000007.json": UTTERANCE.to_json(), "000007.ogg": _ogg(12_000)})
    whole = (tmp_path / "x.tar").read_bytes()
    (tmp_path / "x.tar").write_bytes(whole[:2_000])
    with pytest.raises(ValueError, match=r"x\.tar"):
        list(read_corpus(tmp_path))


def test_bad_audio() -> None:
    with pytest.raises(ValueError, match="not readable"):
        decode_audio(b"OggS nothing")
    with pytest.raises(ValueError, match="16000 Hz"):
        decode_audio(_ogg(8_000, 16_000))
    with pytest.raises(ValueError, match="audio has 6000 samples"):
        load_audio(UTTERANCE, _ogg(6_000))
