"""A picture of loads: how soon first audio came, and how full the listeners' buffers were. Needs matplotlib (extra ``eval``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tts_spec.bench.latency.load import Heard
from tts_spec.bench.latency.playback import SECOND

STEP_NS = 50_000_000  # of the buffer lines


def plot(loads: Mapping[str, Heard], path: Path) -> None:
    """Write a PNG: the CDF of first audio of all ``loads``, and a panel of buffer levels for each."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.2 * (1 + len(loads))), layout="constrained")
    first, *panels = figure.subplots(1 + len(loads), 1, squeeze=False)[:, 0]
    for (name, heard), panel in zip(loads.items(), panels, strict=True):
        values = sorted(ms for each in heard.measured if (ms := each.first_audio_ms()) is not None)
        first.step(values, [(rank + 1) / len(values) for rank in range(len(values))], where="post", label=name)
        for utterance in heard.everything:
            playback = utterance.playback()
            if playback.end_ns is None:
                continue
            times = range(playback.arrivals[0].at_ns, playback.end_ns + STEP_NS, STEP_NS)
            panel.plot(
                [(now - heard.began_ns) / SECOND for now in times],
                [playback.level_ns(now) / SECOND for now in times],
                color=f"C{utterance.session % 10}",
                linewidth=0.7,
            )
            for underrun in playback.underruns:
                panel.axvspan(
                    (underrun.from_ns - heard.began_ns) / SECOND,
                    (underrun.from_ns + underrun.length_ns - heard.began_ns) / SECOND,
                    color="red",
                    alpha=0.3,
                )
        panel.set(title=f"{name}: buffer of each listener (red: underrun)", xlabel="s", ylabel="s of audio ahead")
    first.set(title="First audible audio", xlabel="ms from the first text", ylabel="share", ylim=(0, 1.02))
    first.legend()
    first.grid(alpha=0.3)
    figure.savefig(path, format="png", dpi=110)
