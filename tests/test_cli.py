"""The command, run in this process over random weights."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
import soundfile
from typer.testing import CliRunner

from tts_spec.cli import app, main

KEYS = {
    "audio_s",
    "wall_s",
    "rtf",
    "first_audio_ms",
    "tokens",
    "target_passes",
    "tau",
    "drafted",
    "accepted",
    "drafter",
    "gamma",
    "seed",
    "token_hash",
}


def say(bundle: Path, *arguments: str, stdin: str | None = None) -> dict[str, object]:
    result = CliRunner().invoke(
        app, ["say", *arguments, "--bundle", str(bundle), "--dtype", "float32", "--json"], input=stdin
    )
    assert result.exit_code == 0, result.output
    stats: dict[str, object] = json.loads(result.stdout.splitlines()[-1])
    return stats


def test_drafters_say_the_same(tiny_bundle: Path) -> None:
    plain, drafted = (say(tiny_bundle, "Hello there.", "--seed", "3", "--drafter", name) for name in ("none", "model"))
    assert set(plain) >= KEYS
    assert plain["token_hash"] == drafted["token_hash"]
    assert plain["tokens"] == plain["target_passes"] != drafted["target_passes"]


@pytest.mark.parametrize(
    ("suffix", "kind"), [(".wav", "WAV"), (".flac", "FLAC"), (".ogg", "OGG"), (".mp3", "MP3"), (".unknown", "WAV")]
)
def test_output_and_subtitles(tiny_bundle: Path, tmp_path: Path, suffix: str, kind: str) -> None:
    out, srt = tmp_path / f"a{suffix}", tmp_path / "a.srt"
    vtt = tmp_path / "a.vtt"
    stats = say(tiny_bundle, "Hello there.", "-o", str(out), "--srt", str(srt), "--vtt", str(vtt))
    info = soundfile.info(io.BytesIO(out.read_bytes()))
    assert (info.format, info.samplerate, info.channels) == (kind, 24_000, 1)
    assert info.frames / 24_000 == pytest.approx(
        stats["audio_s"], abs=0.05 if kind == "MP3" else 1e-6
    )  # MP3 has whole frames
    assert "Hello there" in srt.read_text()
    assert vtt.read_text().startswith("WEBVTT")


def test_output_to_the_null_device(tiny_bundle: Path) -> None:
    assert say(tiny_bundle, "Hi.", "-o", "/dev/null")["audio_s"] != 0


def test_text_from_file_and_from_standard_input(tiny_bundle: Path, tmp_path: Path) -> None:
    text = "Hello there.\nHow are you?\n"
    path = tmp_path / "text.txt"
    path.write_text(text)
    hashes = {say(tiny_bundle, "-f", str(path))["token_hash"], say(tiny_bundle, "-", stdin=text)["token_hash"]}
    assert len(hashes) == 1


def test_a_lexicon_changes_what_is_said(tiny_bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "words.toml"
    file.write_text('[lexicon]\nhello = "goodbye"\n')
    read = say(tiny_bundle, "Hello there.", "--lexicon", str(file))
    assert read["token_hash"] == say(tiny_bundle, "Goodbye there.")["token_hash"]
    assert read["token_hash"] != say(tiny_bundle, "Hello there.")["token_hash"]


def test_h52_nothing_to_say(tiny_bundle: Path, tmp_path: Path) -> None:
    stats = say(tiny_bundle, "...", "-o", str(tmp_path / "a.wav"))
    assert (stats["audio_s"], stats["first_audio_ms"]) == (0, None)
    assert soundfile.info(tmp_path / "a.wav").frames == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["say", "Hi.", "--voice", "nobody"], "voice is 'nobody'; allowed: one, two"),
        (["say", "Hi.", "--speed", "9"], "speed is 9.0; allowed: a number from 0.7 to 1.4"),
        (["say", "Hi.", "--dtype", "int8"], "dtype is 'int8'; allowed: auto, float32, bfloat16"),
        (["say", "Hi.", "--device", "tpu"], "device is 'tpu'; allowed: auto, cpu, cuda"),
    ],
)
def test_a_bad_option_is_one_line_and_exit_code_2(
    tiny_bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["tts-spec", *arguments, "--bundle", str(tiny_bundle)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    error = " ".join(capsys.readouterr().err.split())
    assert message in error
    assert "Traceback" not in error


def test_a_missing_bundle_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tts-spec", "voices", "--bundle", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    assert "there is no bundle.json in it" in " ".join(capsys.readouterr().err.split())


def test_voices(tiny_bundle: Path) -> None:
    result = CliRunner().invoke(app, ["voices", "--bundle", str(tiny_bundle), "--json"])
    assert [voice["name"] for voice in json.loads(result.stdout)] == ["one", "two"]


def test_bench_speculation_ends_with_one_json_object(tiny_bundle: Path) -> None:
    arguments = ["bench", "speculation", "--sentences", "1", "--repeats", "1", "--bundle", str(tiny_bundle)]
    result = CliRunner().invoke(app, [*arguments, "--dtype", "float32", "--json"])
    report = json.loads(result.stdout.splitlines()[-1])
    assert [row["drafter"] for row in report["rows"]] == [
        "none",
        "model",
        "early-exit",
        "medusa",
        "lookahead",
        "auto",
    ]
    assert report["equal"] is True
    plain, model, *_ = report["rows"]
    assert (plain["tau"], plain["acceptance_by_position"]) == (1, [])
    assert model["tau"] > 1
    assert 0 < model["draft_share"] < 1
    assert all(0 <= share <= 1 for share in model["acceptance_by_position"])
    assert report["rows"][0]["ratio"] == 1
