"""Float samples of one stream to the bytes of its format: one encoder from the first sample to the last.

The bytes depend on the samples only, not on how they were cut. Knows no socket and no message; calls block for as long as
the codec works (a fraction of a millisecond for a second of PCM, some ten for MP3), so a caller with an event loop uses a
thread.
"""

from __future__ import annotations

import struct
from typing import Any, Protocol

import av
import numpy as np
import numpy.typing as npt
import soxr

from tts_spec.audio.formats import AudioFormat, Codec
from tts_spec.audio.tempo import Tempo
from tts_spec.types import Pcm

WAV_UNKNOWN = 0xFFFFFFFF  # size fields of a WAV whose end is not known yet: readers then read to the end

# What FFmpeg calls them: muxer (None: packets are the stream), encoder, sample format, options of muxer and encoder.
# Bit-exact: no time, version or random serial number, so equal samples give equal bytes.
_FFMPEG: dict[Codec, tuple[str | None, str, str, dict[str, str], dict[str, str]]] = {
    "ulaw": (None, "pcm_mulaw", "s16", {}, {}),
    "alaw": (None, "pcm_alaw", "s16", {}, {}),
    # No muxer, so no Xing frame, which makes players of a stream skip audio. No bit reservoir: the frames that hold
    # only the encoder's delay can be left out.
    "mp3": (None, "libmp3lame", "fltp", {}, {"reservoir": "0"}),
    # A page for each frame of 20 ms: by default a page, and the listener, waits for a second.
    "opus": ("ogg", "libopus", "flt", {"page_duration": "20000"}, {}),
    "aac": ("adts", "aac", "fltp", {}, {}),
    "flac": ("flac", "flac", "s16", {"metadata_header_padding": "0"}, {}),
}
# Samples by which these codecs, encoder and decoder together, shift the audio. Neither ADTS nor MP3 without a Xing frame
# can tell a player, so the frames that hold nothing else are left out: the first sample decoded is the first one given.
_DELAY: dict[Codec, int] = {"mp3": 1105, "aac": 1024}


class _Packer(Protocol):
    def pack(self, pcm: Pcm) -> bytes: ...
    def finish(self) -> bytes: ...


class Encoder:
    """One stream of audio in one format."""

    def __init__(self, audio_format: AudioFormat, source_rate: int, tempo: float = 1.0) -> None:
        """``source_rate``: of the samples given to ``encode``, in Hz. ``tempo``: 2 = twice as fast."""
        self._tempo = None if tempo == 1.0 else Tempo(tempo, source_rate)
        self._resampler = None
        if audio_format.rate != source_rate:
            # soxr's LQ: 105 dB below the stop band, flat to 0.75 of the band, and it gives audio for the first codec frame. HQ is
            # flat to 0.9 but holds 50 ms back, which only formats with frames of their own can afford.
            quality = "HQ" if audio_format.is_compressed else "LQ"
            self._resampler = soxr.ResampleStream(source_rate, audio_format.rate, 1, dtype="float32", quality=quality)
        self._packer: _Packer
        match audio_format.codec:
            case "pcm_s16le":
                self._packer = _Pcm16()
            case "pcm_f32le":
                self._packer = _Pcm32()
            case "wav":
                self._packer = _Wav(audio_format.rate)
            case _:
                self._packer = _Ffmpeg(audio_format)

    def encode(self, pcm: Pcm) -> bytes:
        """Bytes that ``pcm`` ([N], clipped to -1..1) completes; may be empty. Plain formats: whole samples."""
        if self._tempo is not None:
            pcm = self._tempo.apply(pcm)
        return self._packer.pack(pcm if self._resampler is None else self._resampler.resample_chunk(pcm))

    def finish(self) -> bytes:
        """The bytes still inside; nothing may follow."""
        pcm: Pcm = np.zeros(0, np.float32) if self._tempo is None else self._tempo.finish()
        if self._resampler is not None:
            pcm = self._resampler.resample_chunk(pcm, last=True)
        return self._packer.pack(pcm) + self._packer.finish()


def to_int16(pcm: Pcm) -> npt.NDArray[np.int16]:
    """Nearest 16-bit values. Clip, then round; the other order, or none, turns a full-scale +1.0 into -32768."""
    samples: npt.NDArray[np.int16] = np.rint(np.clip(pcm * 32767.0, -32768.0, 32767.0)).astype("<i2")
    return samples


def wav_header(rate: int, data_bytes: int | None = None) -> bytes:
    """44 bytes for 16-bit mono. ``data_bytes`` None: the end is not known."""
    riff, data = (WAV_UNKNOWN, WAV_UNKNOWN) if data_bytes is None else (36 + data_bytes, data_bytes)
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", riff, b"WAVE", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16, b"data", data
    )


class _Pcm16:
    def pack(self, pcm: Pcm) -> bytes:
        return to_int16(pcm).tobytes()

    def finish(self) -> bytes:
        return b""


class _Pcm32:
    def pack(self, pcm: Pcm) -> bytes:
        return pcm.astype("<f4").tobytes()

    def finish(self) -> bytes:
        return b""


class _Wav:
    def __init__(self, rate: int) -> None:
        self._header = wav_header(rate)

    def pack(self, pcm: Pcm) -> bytes:
        if not len(pcm):
            return b""
        header, self._header = self._header, b""
        return header + to_int16(pcm).tobytes()

    def finish(self) -> bytes:
        return self._header  # a stream without audio is still a WAV file


class _Sink:
    """What a muxer writes to: no seeking, so headers are never gone back to."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def write(self, data: bytes) -> int:
        self._bytes += data
        return len(data)

    def take(self) -> bytes:
        taken = bytes(self._bytes)
        self._bytes.clear()
        return taken


class _Ffmpeg:
    def __init__(self, audio_format: AudioFormat) -> None:
        muxer, codec, self._sample_format, muxer_options, options = _FFMPEG[audio_format.codec]
        self._rate = audio_format.rate
        self._sink = _Sink()
        self._container: Any = None
        if muxer is None:
            context = av.CodecContext.create(codec, "w")
            assert isinstance(context, av.AudioCodecContext)
            context.options = options
            context.sample_rate = self._rate
            self._context: Any = context
        else:
            flags = {"flush_packets": "1", "fflags": "+bitexact"}
            self._container = av.open(self._sink, "w", format=muxer, options=flags | muxer_options)
            self._stream = self._container.add_stream(codec, rate=self._rate, options=options)
            self._context = self._stream.codec_context
        self._context.layout = "mono"
        self._context.format = self._sample_format
        if audio_format.codec not in ("ulaw", "alaw", "flac"):
            self._context.bit_rate = audio_format.bits_per_second
        self._context.open()
        self._samples = 0
        self._padding = 0
        self._skip = 0  # packets to leave out yet
        self._kept = 0  # packets
        self._frame = self._context.frame_size if audio_format.codec in _DELAY else 0
        if self._frame:
            delay = _DELAY[audio_format.codec]
            self._padding = -delay % self._frame
            self._skip = (delay + self._padding) // self._frame
            self._encode(np.zeros(self._padding, np.float32))

    def pack(self, pcm: Pcm) -> bytes:
        self._samples += len(pcm)
        self._encode(pcm)
        return self._sink.take()

    def finish(self) -> bytes:
        if self._samples:
            self._write(self._context.encode(None))
        if self._container is not None:
            self._container.close()
        return self._sink.take()

    def _encode(self, pcm: Pcm) -> None:
        if not len(pcm):
            return
        samples: Any = to_int16(pcm) if self._sample_format == "s16" else np.clip(pcm, -1.0, 1.0)
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(samples)[None], format=self._sample_format, layout="mono"
        )
        frame.sample_rate = self._rate
        frame.pts = None
        self._write(self._context.encode(frame))

    def _write(self, packets: list[Any]) -> None:
        for packet in packets:
            if self._skip:
                self._skip -= 1
                continue
            if self._frame and self._kept * self._frame >= self._samples:
                continue  # only padding: the audio is already complete
            self._kept += 1
            if self._container is None:
                self._sink.write(bytes(packet))
            else:
                packet.stream = self._stream
                self._container.mux(packet)
