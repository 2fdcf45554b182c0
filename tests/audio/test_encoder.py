"""Every format decoded again by FFmpeg's decoders (PyAV) and held against the samples that went in."""

from __future__ import annotations

import io
import struct

import av
import numpy as np
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tts_spec.audio.encoder import WAV_UNKNOWN, Encoder, to_int16
from tts_spec.audio.formats import RATES, AudioFormat, Codec
from tts_spec.types import Pcm

SOURCE_RATE = 24_000
CODECS: tuple[Codec, ...] = ("pcm_s16le", "pcm_f32le", "ulaw", "alaw", "wav", "mp3", "opus", "aac", "flac")
RAW = {"pcm_s16le": "s16le", "pcm_f32le": "f32le", "ulaw": "mulaw", "alaw": "alaw"}
EVERY = [AudioFormat(codec, rate) for codec in CODECS for rate in AudioFormat(codec, 8_000).rates]
# The bit rates of a well-known service, and the ends of the range.
EVERY += [AudioFormat("mp3", 44_100, 1000 * kbits) for kbits in (32, 96, 128, 192, 320)]
EVERY += [AudioFormat("mp3", 22_050, 32_000), AudioFormat("mp3", 24_000, 48_000), AudioFormat("aac", 24_000, 320_000)]
EVERY += [AudioFormat("opus", 48_000, 1000 * kbits) for kbits in (32, 96, 128, 192, 256)]
FRAME = {"mp3": 1152, "aac": 1024}  # samples by which the length may be rounded up


def voice_like(seconds: float) -> Pcm:
    """A tone that glides over some noise, as loud at the very end as before, after 30 ms of near silence."""
    t = np.arange(round(seconds * SOURCE_RATE)) / SOURCE_RATE
    noise = np.random.default_rng(1).standard_normal(len(t))
    sound = 0.4 * np.sin(2 * np.pi * (200 + 150 * t) * t) + 0.01 * noise
    return (sound * np.clip((t - 0.03) / 0.01, 0, 1)).astype(np.float32)


def encode(audio_format: AudioFormat, pcm: Pcm, sizes: list[int]) -> list[bytes]:
    """What every call gives when ``pcm`` comes in pieces of these sizes, over and over."""
    encoder, at, parts = Encoder(audio_format, SOURCE_RATE), 0, []
    while at < len(pcm):
        size = sizes[len(parts) % len(sizes)]
        parts.append(encoder.encode(pcm[at : at + size]))
        at += size
    return [*parts, encoder.finish()]


def decode(audio_format: AudioFormat, data: bytes) -> tuple[Pcm, int]:
    """Samples and their rate, by FFmpeg."""
    raw = RAW.get(audio_format.codec)
    options = {"sample_rate": str(audio_format.rate)} if raw else {}
    with av.open(io.BytesIO(data), format=raw, options=options) as container:
        to_float = av.AudioResampler(format="flt", layout="mono")
        frames = [each for frame in container.decode(audio=0) for each in to_float.resample(frame)]
        rate = container.streams.audio[0].rate
    return np.concatenate([frame.to_ndarray().reshape(-1) for frame in frames]), rate


@pytest.mark.parametrize("audio_format", EVERY, ids=lambda each: f"{each.codec}-{each.rate}-{each.bitrate}")
def test_b10_b11_b12_g48_decoded_again_it_is_the_same_sound_and_none_is_missing(audio_format: AudioFormat) -> None:
    """Complaints B10 to B12 (last words lost) and G48 (players cannot read it)."""
    pcm = voice_like(1.237)
    samples, rate = decode(audio_format, b"".join(encode(audio_format, pcm, [600])))
    wanted = soxr.resample(pcm, SOURCE_RATE, rate)
    assert 0 <= len(samples) - len(wanted) < FRAME.get(audio_format.codec, 1)
    # Not shifted: the first sample decoded is the first one given.
    assert np.corrcoef(samples[: len(wanted)], wanted)[0, 1] >= 0.98
    loud = slice(len(wanted) - rate // 50, len(wanted))
    assert np.sqrt(np.mean(samples[loud] ** 2)) > 0.8 * np.sqrt(np.mean(wanted[loud] ** 2))


@pytest.mark.parametrize("codec", CODECS)
@settings(deadline=None, max_examples=8)
@given(st.lists(st.integers(1, 5000), min_size=1, max_size=6), st.integers(0, 20_000), st.sampled_from(RATES))
def test_the_bytes_do_not_depend_on_the_cuts(codec: Codec, sizes: list[int], length: int, rate: int) -> None:
    audio_format = AudioFormat(codec, rate if rate in AudioFormat(codec, 8_000).rates else 8_000)
    pcm = voice_like(1.0)[:length]
    whole = b"".join(encode(audio_format, pcm, [max(1, length)]))
    assert b"".join(encode(audio_format, pcm, sizes)) == whole


@pytest.mark.parametrize("codec", ["pcm_s16le", "pcm_f32le"])
@pytest.mark.parametrize("rate", RATES)
def test_pcm_leaves_in_whole_samples(codec: Codec, rate: int) -> None:
    width = 2 if codec == "pcm_s16le" else 4
    parts = encode(AudioFormat(codec, rate), voice_like(0.5), [600, 1, 77])
    assert all(len(part) % width == 0 for part in parts)
    assert sum(map(len, parts)) == round(0.5 * rate) * width


def test_plain_pcm_has_no_delay_at_any_rate_but_8_khz() -> None:
    """The first codec frame, 25 ms, is heard at once: it must not wait in a resampler."""
    for rate in RATES[1:]:
        assert len(encode(AudioFormat("pcm_s16le", rate), voice_like(0.1), [600])[0]) > rate * 0.015 * 2


@pytest.mark.parametrize("rate", [8_000, 16_000])
def test_what_the_lower_rate_cannot_hold_does_not_come_back_as_another_tone(rate: int) -> None:
    """Checklist 10: properly low-passed."""
    t = np.arange(SOURCE_RATE) / SOURCE_RATE
    whistle = (0.5 * np.sin(2 * np.pi * 0.6 * rate * t)).astype(np.float32)
    samples, _ = decode(
        AudioFormat("pcm_f32le", rate), b"".join(encode(AudioFormat("pcm_f32le", rate), whistle, [600]))
    )
    assert np.abs(samples[rate // 10 : -rate // 10]).max() < 1e-4


def test_a1_g45_a_streamed_wav_says_that_its_size_is_unknown_once() -> None:
    parts = encode(AudioFormat("wav", 24_000), voice_like(0.1), [600])
    header = parts[0][:44]
    assert struct.unpack("<4sI4s4sIHHIIHH4sI", header) == (
        b"RIFF", WAV_UNKNOWN, b"WAVE", b"fmt ", 16, 1, 1, 24_000, 48_000, 2, 16, b"data", WAV_UNKNOWN,
    )  # fmt: skip
    assert b"".join(parts).count(b"RIFF") == 1
    assert len(b"".join(parts)) == 44 + 2 * 2400


def test_a1_a8_a_streamed_mp3_has_no_xing_frame_and_ogg_headers_come_once() -> None:
    mp3 = b"".join(encode(AudioFormat("mp3", 44_100), voice_like(0.5), [600]))
    assert mp3[:2] in (b"\xff\xfb", b"\xff\xf3")
    assert not any(mark in mp3 for mark in (b"Xing", b"Info", b"ID3"))
    parts = encode(AudioFormat("opus", 24_000), voice_like(0.5), [600])
    assert parts[0].startswith(b"OggS")
    assert b"".join(parts).count(b"OpusHead") == 1
    assert b"OpusHead" in parts[0]


def test_opus_leaves_page_by_page() -> None:
    """By default a page holds a second, and so does the listener's wait."""
    parts = encode(AudioFormat("opus", 24_000), voice_like(0.5), [600])
    assert sum(part.count(b"OggS") for part in parts[:8]) >= 6


@pytest.mark.parametrize("codec", CODECS)
def test_a_stream_without_audio_can_be_finished(codec: Codec) -> None:
    assert isinstance(Encoder(AudioFormat(codec, 8_000), SOURCE_RATE).finish(), bytes)


def test_full_scale_does_not_wrap_around() -> None:
    """CosyVoice servers turned +1.0 into -32768 (latency.md 3.2)."""
    loud = np.array([1.0, -1.0, 1.5, -1.5, 0.0], dtype=np.float32)
    assert to_int16(loud).tolist() == [32767, -32767, 32767, -32768, 0]


@given(hnp.arrays(np.float32, st.integers(0, 50), elements=st.floats(-4, 4, width=32)))
@settings(deadline=None, max_examples=50)
def test_16_bit_is_the_nearest_value_in_range(pcm: Pcm) -> None:
    wanted = np.clip(pcm.astype(np.float64) * 32767, -32768, 32767)
    assert np.all(np.abs(to_int16(pcm).astype(np.float64) - wanted) <= 0.51)
