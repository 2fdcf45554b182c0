"""The ``tts-spec`` command: say, voices, serve, bench. Only reads options and prints; the work is elsewhere."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from tts_spec.types import Chunk, DrafterName, SpeakOptions, SpeculationMode, SpeechError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
bench = typer.Typer(no_args_is_help=True, help="Measure, in one run, what the README states.")
app.add_typer(bench, name="bench")
console = Console(stderr=True)

Bundle = Annotated[Path | None, typer.Option(help="Folder with a bundle.json; default: the starter voice.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Dtype = Annotated[str, typer.Option(help="Arithmetic of the target: auto, float32 or bfloat16.")]
AsJson = Annotated[bool, typer.Option("--json", help="End standard output with one JSON line.")]


@app.command()
def say(
    text: Annotated[str | None, typer.Argument(help="What to say; - reads standard input as it arrives.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the text from a file.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Audio file; WAV unless .flac, .ogg or .mp3.")
    ] = None,
    play: Annotated[bool, typer.Option("--play", help="Play while speaking (needs the extra `play`).")] = False,
    voice: Annotated[str | None, typer.Option(help="A name, or a mix: heart(2)+michael(1).")] = None,
    speed: float = 1.0,
    seed: int = 0,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    repetition_penalty: float | None = None,
    drafter: DrafterName | None = None,
    gamma: int | None = None,
    mode: Annotated[
        SpeculationMode, typer.Option(help="coupled: the tokens of plain decoding; ratio: only their distribution.")
    ] = "coupled",
    srt: Annotated[Path | None, typer.Option(help="Write SubRip subtitles.")] = None,
    vtt: Annotated[Path | None, typer.Option(help="Write WebVTT subtitles, every word timed.")] = None,
    lexicon: Annotated[Path | None, typer.Option(help="TOML file whose [lexicon] says how words are read.")] = None,
    bundle: Bundle = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    as_json: AsJson = False,
) -> None:
    """Speak a text."""
    from tts_spec.subtitles import to_srt, to_vtt
    from tts_spec.synthesizer import Synthesizer
    from tts_spec.text.lexicon import read_lexicon

    if (text is None) == (file is None):
        raise typer.BadParameter("give either a TEXT (or -) or a file with -f")
    options = SpeakOptions(voice, speed, seed, temperature, top_k, top_p, repetition_penalty, drafter, gamma, mode)
    pieces: Iterator[str] = sys.stdin if text == "-" else iter([file.read_text() if file else text or ""])
    chunks: list[Chunk] = []
    speakers = _Loudspeaker() if play else None
    try:
        synthesizer = Synthesizer.load(bundle, device, dtype, read_lexicon(lexicon))
        if voice is not None:
            synthesizer.warm(voice)
        for chunk in synthesizer.stream(pieces, options):
            chunks.append(chunk)
            for warning in chunk.warnings:
                console.print(f"warning: {warning.message}", style="yellow")
            if speakers:
                speakers.play(chunk)
    finally:
        if speakers:
            speakers.close()
    if output:
        output.write_bytes(_audio_file(chunks, output.suffix))
    words = [word for chunk in chunks for word in chunk.words]
    if srt:
        srt.write_text(to_srt(words), encoding="utf-8")
    if vtt:
        vtt.write_text(to_vtt(words), encoding="utf-8")
    stats = chunks[-1].stats
    assert stats is not None
    if as_json:
        print(json.dumps(stats.as_dict()))
    else:
        first = f"{stats.first_audio_ms:.0f} ms" if stats.first_audio_ms is not None else "none"
        console.print(
            f"{stats.audio_s:.2f} s of audio in {stats.wall_s:.2f} s (RTF {stats.rtf:.2f}), first audio {first}, "
            f"tau {stats.tau:.2f} with drafter {stats.drafter}"
        )


@app.command()
def voices(bundle: Bundle = None, as_json: AsJson = False) -> None:
    """List the bundle's voices."""
    from models.bundle import read_manifest
    from tts_spec.synthesizer import STARTER

    entries = read_manifest(bundle or STARTER).voices
    if as_json:
        print(json.dumps([{"name": v.name, "language": v.language, "gender": v.gender} for v in entries]))
        return
    table = Table("voice", "language", "gender", "description")
    for voice in entries:
        table.add_row(voice.name, voice.language, voice.gender, voice.description)
    Console().print(table)


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address; another than 127.0.0.1 needs API keys.")] = None,
    port: Annotated[int | None, typer.Option(help="Of HTTP and WebSocket; default 8000, 0 = any free port.")] = None,
    wyoming_port: Annotated[
        int | None, typer.Option(help="Of Wyoming, for Home Assistant (usually 10200); default: off.")
    ] = None,
    max_sessions: Annotated[
        int | None,
        typer.Option(help="Streams served at once, default 16; others wait for two seconds, then are told overloaded."),
    ] = None,
    tls_certificate: Annotated[str | None, typer.Option(help="PEM file: serve https and wss.")] = None,
    tls_key: Annotated[str | None, typer.Option(help="PEM file, where the key is not beside the certificate.")] = None,
    allow_anyone: Annotated[
        bool | None, typer.Option("--allow-anyone", help="Serve other machines although no API key is asked for.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="File with all settings and the API keys; default: ./tts-spec.toml if there is one."),
    ] = None,
    bundle: Bundle = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Serve the demo page and all protocols: native, OpenAI, ElevenLabs, Wyoming. API keys: the file, or TTS_SPEC_API_KEYS."""
    from service.config import load_options, settings_file
    from service.server import serve as serve_engine
    from tts_spec.engine.options import EngineOptions
    from tts_spec.engine.process import ProcessEngine
    from tts_spec.engine.worker import EngineSetup
    from tts_spec.text.lexicon import read_lexicon

    given = {
        "host": host,
        "port": port,
        "wyoming_port": wyoming_port,
        "max_sessions": max_sessions,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
        "allow_anyone": allow_anyone,
    }
    options = load_options(config, os.environ, given)
    limits = EngineOptions(max_sessions=options.max_sessions, max_queued=options.max_waiting)
    engine = ProcessEngine(EngineSetup(bundle, device, dtype, limits, read_lexicon(settings_file(config))))
    megabytes = engine.metrics()["kv_cache_bytes"] / 1e6
    console.print(f"KV caches of {limits.max_sessions} sessions: {megabytes:.1f} MB", highlight=False)
    serve_engine(engine, options)


@app.command()
def key(name: Annotated[str, typer.Argument(help="Whose key it is, for logs.")]) -> None:
    """Make an API key: it is shown once; the server keeps its hash."""
    from service.keys import hash_key, new_key

    made = new_key()
    print(f'{made}\n\n# for tts-spec.toml:\n[[keys]]\nname = {json.dumps(name)}\nsha256 = "{hash_key(made)}"')


@bench.command()
def speculation(
    sentences: Annotated[int, typer.Option(help="Held-out sentences.")] = 12,
    repeats: int = 3,
    peers: Annotated[
        bool, typer.Option("--peers", help="Instead: ours beside transformers on the same weights (extra `test`).")
    ] = False,
    bundle: Bundle = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    as_json: AsJson = False,
) -> None:
    """Plain decoding against each drafter: tokens a second, tau, acceptance, interleaved in one run."""
    from tts_spec.bench.peers import run as run_peers
    from tts_spec.bench.speculation import run as run_own
    from tts_spec.synthesizer import Synthesizer

    run = run_peers if peers else run_own
    _report(run(Synthesizer.load(bundle, device, dtype), sentences, repeats, console), as_json)


@bench.command()
def exactness(
    n: Annotated[int, typer.Option(help="Utterances: held-out sentences, the voices in turn.")] = 20,
    seconds: Annotated[float | None, typer.Option(help="Stop after this long; default: no limit.")] = None,
    bundle: Bundle = None,
    device: Device = "auto",
    dtype: Annotated[
        Literal["both", "float32", "bfloat16"], typer.Option(help="Weights of target and drafters.")
    ] = "both",
    as_json: AsJson = False,
) -> None:
    """Every drafter, gamma and temperature against plain decoding, token for token; exit code 1 where the contract is broken."""
    from tts_spec.bench.exactness import run
    from tts_spec.synthesizer import Synthesizer

    dtypes = ("float32", "bfloat16") if dtype == "both" else (dtype,)
    report = run({name: Synthesizer.load(bundle, device, name) for name in dtypes}, n, seconds, console)
    _report(report, as_json)
    if not report["ok"]:
        raise typer.Exit(1)


@bench.command()
def latency(
    sessions: Annotated[int, typer.Option(help="Live listeners, one utterance after another as each is played.")] = 1,
    rps: Annotated[float | None, typer.Option(help="Instead: listeners a second, at random (open loop).")] = None,
    find_capacity: Annotated[
        bool, typer.Option("--find-capacity", help="Search the most sessions with 0 underruns within --budget.")
    ] = False,
    most: Annotated[int, typer.Option(help="Sessions at which the search, and the server we start, end.")] = 32,
    seconds: Annotated[float, typer.Option(help="Of each load, after the warm-up.")] = 20.0,
    warmup: Annotated[float, typer.Option(help="Seconds in which the load builds up.")] = 3.0,
    utterances: Annotated[int | None, typer.Option(help="End a load after so many.")] = None,
    budget: Annotated[float, typer.Option(help="First audio p95 that counts as holding, ms.")] = 250.0,
    texts: Annotated[Path | None, typer.Option(help="A text a line; default: the held-out sentences.")] = None,
    words: Annotated[
        float | None, typer.Option(help="Text comes by the word, so many a second; default: whole.")
    ] = None,
    leave: Annotated[float, typer.Option(help="Share of utterances left early: cancels and lost connections.")] = 0.0,
    cancels: Annotated[int, typer.Option(help="Cancels measured after the load, under the same sessions.")] = 20,
    compare: Annotated[str, typer.Option(help="Drafters measured in turn, e.g. none,auto.")] = "default",
    plot: Annotated[Path | None, typer.Option(help="Write a PNG: CDF of first audio, buffers (extra `eval`).")] = None,
    url: Annotated[
        str | None, typer.Option(help="A server that runs, http://host:port; default: one is started.")
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="native, openai or elevenlabs; or several, e.g. native,openai: utterances take turns.")
    ] = "native",
    model: Annotated[str, typer.Option(help="Model named to a server with --protocol openai.")] = "tts-1",
    baseline: Annotated[
        Literal["hibari", "kokoro"] | None, typer.Option(help="A sentence at a time, in this process (extra `train`).")
    ] = None,
    voice: str | None = None,
    seed: int = 0,
    nice: Annotated[int, typer.Option(help="Of this harness beside the server we start.")] = 5,
    bundle: Bundle = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Only the JSON line: no tables.")] = False,
) -> None:
    """First audio, underruns, gaps, cancels and capacity of a server as a listener has them; ends with one JSON line (extra eval)."""
    from models.evaluation.sentences import held_out_sentences
    from tts_spec.bench.latency.options import LatencyOptions
    from tts_spec.bench.latency.run import Where, run

    lines = texts.read_text(encoding="utf-8").splitlines() if texts else held_out_sentences()
    options = LatencyOptions(
        sessions=sessions,
        rate=rps,
        find_capacity=find_capacity,
        max_sessions=most,
        seconds=seconds,
        warmup_s=warmup,
        utterances=utterances,
        budget_ms=budget,
        texts=tuple(line for line in lines if line.strip()),
        words_per_s=words,
        leave_share=leave,
        cancels=cancels,
        settings=tuple(compare.split(",")),
        voice=voice,
        seed=seed,
    )
    serve_arguments = ["--max-sessions", str(max(most, sessions)), "--device", device, "--dtype", dtype]
    if bundle is not None:
        serve_arguments += ["--bundle", str(bundle)]
    where = Where(url, protocol, model, baseline, tuple(serve_arguments), nice)
    _report(run(options, where, Console(stderr=True, quiet=as_json), plot), True)


@bench.command()
def quality(
    n: Annotated[int, typer.Option(help="Held-out sentences, voices in turn.")] = 60,
    speeds: Annotated[str, typer.Option(help="Taken in turn.")] = "1,1,1,0.8,1.25",
    voice: Annotated[str | None, typer.Option(help="Only this one, or several: a,b.")] = None,
    keep: Annotated[Path | None, typer.Option(help="Folder of clips and scores that later runs reuse.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a PNG: spectrograms of the first four.")] = None,
    bundle: Bundle = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    as_json: AsJson = False,
) -> None:
    """Words and sound beside the teacher's and the codec's own on the same held-out sentences (needs the extras eval, train)."""
    from tts_spec.bench.quality import QualityOptions, run
    from tts_spec.synthesizer import Synthesizer

    options = QualityOptions(n, _numbers("speeds", speeds), tuple(voice.split(",")) if voice else None, keep, plot)
    _report(run(Synthesizer.load(bundle, device, dtype), options, console), as_json)


def _numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise SpeechError("invalid_value", f"{name} is {text!r}; allowed: numbers like 0.8,1", name) from None


def _report(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))


def _audio_file(chunks: list[Chunk], suffix: str) -> bytes:
    import numpy as np
    import soundfile

    buffer = io.BytesIO()
    kind = {".flac": "FLAC", ".ogg": "OGG", ".mp3": "MP3"}.get(suffix.lower(), "WAV")
    pcm = np.concatenate([chunk.pcm for chunk in chunks])
    soundfile.write(buffer, pcm, chunks[0].sample_rate, format=kind)
    return buffer.getvalue()


class _Loudspeaker:
    """The default output device, through sounddevice."""

    def __init__(self) -> None:
        try:
            import sounddevice
        except (ImportError, OSError) as error:
            raise typer.BadParameter(f"--play needs the extra `play` and PortAudio: {error}") from error
        self._sounddevice = sounddevice
        self._stream: Any = None

    def play(self, chunk: Chunk) -> None:
        if self._stream is None:
            self._stream = self._sounddevice.OutputStream(chunk.sample_rate, channels=1, dtype="float32")
            self._stream.start()
        self._stream.write(chunk.pcm[:, None])

    def close(self) -> None:
        if self._stream is not None:
            self._stream.stop()
            self._stream.close()


def main() -> None:
    """Entry point: a bad option is one clear line and exit code 2, not a traceback."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        app()
    except ValueError as error:
        from models.bundle import BundleError  # only now: the server's process does without torch

        if not isinstance(error, SpeechError | BundleError):
            raise
        console.print(f"tts-spec: {error}", style="red", markup=False)
        sys.exit(2)
