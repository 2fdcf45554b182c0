"""From options to the JSON line: measuring in virtual time, and the whole command against a server in a process of its own."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.bench.latency.test_load import FRAME, Clockwork
from tests.virtual_time import VirtualTime, finish
from tts_spec.bench.latency.gauges import LAG, Scrape
from tts_spec.bench.latency.load import Heard
from tts_spec.bench.latency.measure import Measured, measure
from tts_spec.bench.latency.options import LatencyOptions
from tts_spec.bench.latency.plot import plot
from tts_spec.bench.latency.report import Watch, as_dict, figures, show
from tts_spec.bench.latency.run import Where
from tts_spec.bench.latency.server import serving
from tts_spec.bench.latency.utterance import Leave, Outcome, Request, Utterance
from tts_spec.cli import app
from tts_spec.types import SpeechError

MS = 1_000_000
QUIET = Console(file=io.StringIO())
SERVE_FAKE = (sys.executable, "-m", "tests.service.serve_fake")


class Shared(Clockwork):
    """A model that all share: a piece of 100 ms takes 12 ms for each who is speaking, so 8 can be served."""

    async def speak(self, utterance: Utterance) -> None:
        self.active += 1
        utterance.sent_ns = self.loop.ns()
        for _ in range(20):
            await asyncio.sleep(0.012 * self.active)
            utterance.hear(self.loop.ns(), FRAME * 4)
            if utterance.request.leave:
                await asyncio.sleep(0.03)
                utterance.left_ns = self.loop.ns() - 20 * MS
                utterance.outcome = Outcome.LEFT
                break
        else:
            utterance.ended_ns, utterance.outcome = self.loop.ns(), Outcome.COMPLETE
        self.active -= 1


def options(**fields: Any) -> LatencyOptions:
    return LatencyOptions(**({"texts": ("Hello there.",), "seconds": 20.0} | fields))


def test_capacity_of_a_shared_model(virtual: VirtualTime) -> None:
    found = finish(virtual, measure(Shared(virtual), None, options(find_capacity=True), None, QUIET, clock=virtual.ns))
    assert (found.capacity, found.sessions) == (8, 8)
    assert found.figures.underruns == 0
    first = found.figures.spread["first_audio_ms"]
    assert first.p50 is not None
    assert first.p95 is not None
    assert 12 <= first.p50 <= first.p95 <= 96 + 1e-6
    assert found.figures.spread["cancel_ms"].n == 20
    assert found.figures.spread["cancel_ms"].max == 0


def test_capacity_by_the_budget(virtual: VirtualTime) -> None:
    def measured(**fields: Any) -> Measured:
        asked = options(budget_ms=30.0, cancels=0, **fields)
        return finish(virtual, measure(Shared(virtual), None, asked, None, QUIET, clock=virtual.ns))

    found = measured(find_capacity=True)
    assert found.capacity is not None
    assert 0 < found.capacity < 8
    assert measured(sessions=found.capacity).figures.holds(30)
    more = measured(sessions=found.capacity + 1).figures
    assert more.underruns == 0
    assert not more.holds(30)
    none = options(find_capacity=True, budget_ms=5.0, cancels=0)
    assert finish(virtual, measure(Shared(virtual), None, none, None, QUIET, clock=virtual.ns)).capacity == 0


def utterance(outcome: Outcome, at_ms: list[int], **fields: Any) -> Utterance:
    """25 ms of audio at each time; t0 is 100 ms."""
    made = Utterance(Request("Hello."), 0, 90 * MS, 95 * MS, 100 * MS, outcome=outcome, **fields)
    loud = bytes(range(1, 241)) * 5  # noise enough
    for at in at_ms:
        made.hear(at * MS, loud)
    return made


def test_figures_of_a_timeline() -> None:
    good = utterance(Outcome.COMPLETE, [150, 160, 170], ended_ns=200 * MS)
    gappy = utterance(Outcome.COMPLETE, [180, 300], ended_ns=310 * MS)
    cancelled = utterance(Outcome.LEFT, [150, 170, 190], left_ns=180 * MS, free_ns=205 * MS)
    cancelled.request = Request("Hello.", leave=Leave.CANCEL)
    failed = utterance(Outcome.UNFINISHED, [])
    failed.fail("broken")
    heard = Heard(0, (good, gappy, failed), (good, gappy))
    found = figures(heard, [cancelled])
    assert found.outcomes == {"complete": 2, "failed": 1}
    assert (found.underruns, found.underrun_utterances, found.stalled_ms) == (1, 1, 95)
    assert found.errors == ("broken",)
    spread = found.spread
    assert (spread["first_audio_ms"].min, spread["first_audio_ms"].max) == (50, 80)
    assert (spread["end_to_end_ms"].min, spread["end_to_end_ms"].max) == (100, 210)
    assert (spread["setup_ms"].max, spread["schedule_ms"].max) == (5, 5)
    assert (spread["gap_ms"].n, spread["gap_ms"].max) == (3, 120)
    assert (spread["min_lead_ms"].min, spread["min_lead_ms"].max) == (-95, 15)
    assert (spread["cancel_ms"].max, spread["free_ms"].max) == (10, 25)
    assert not found.holds(1000)
    fine = figures(Heard(0, (good,), (good,)))
    assert fine.holds(50)
    assert not fine.holds(49)
    assert not figures(Heard(0, (), ())).holds(1000)
    refused = utterance(Outcome.REFUSED, [])
    assert not figures(Heard(0, (good, refused), (good, refused))).holds(1000)
    assert not figures(Heard(0, (good, utterance(Outcome.COMPLETE, [])), (good,))).holds(1000)  # nothing to hear


def test_what_arrives_after_leaving_is_no_underrun() -> None:
    late = utterance(Outcome.LEFT, [150, 400], left_ns=160 * MS)
    assert figures(Heard(0, (late,), (late,))).underruns == 0


def test_growth_of_memory_since_the_first_fifty() -> None:
    watch = Watch(rss_mb=[(0, 100.0), (49, 150.0), (55, 200.0), (300, 203.0)])
    rss = as_dict(figures(Heard(0, (), ())), watch)["rss_mb"]
    assert rss == {"first": 100, "after_50": 200, "last": 203, "growth": 0.015}


def test_loop_lag_since_a_scrape() -> None:
    def scrape(low: int, high: int) -> Scrape:
        lines = [
            f"# TYPE {LAG} histogram",
            f'{LAG}_bucket{{le="0.001"}} {low}',
            f'{LAG}_bucket{{le="0.01"}} {low + high}',
            f'{LAG}_bucket{{le="+Inf"}} {low + high}',
            f"{LAG}_sum 1",
            f"{LAG}_count {low + high}",
            "# TYPE other gauge",
            "other 4",
        ]
        return Scrape.parse("\n".join(lines) + "\n")

    before, after = scrape(1000, 900), scrape(1100, 900)
    assert after.values["other"] == 4
    assert after.percentiles_since(before, LAG) == {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    assert after.percentiles_since(after, LAG) == {"p50": None, "p95": None, "p99": None}
    assert after.percentiles_since(before, "unknown") == {"p50": None, "p95": None, "p99": None}


def test_a_picture(tmp_path: Path) -> None:
    good = utterance(Outcome.COMPLETE, [150, 160, 300], ended_ns=200 * MS)
    silent = utterance(Outcome.COMPLETE, [])
    plot({"none": Heard(0, (good,), (good,)), "auto": Heard(0, (silent,), (silent,))}, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_table_shows_what_was_measured() -> None:
    good = utterance(Outcome.COMPLETE, [150, 160], ended_ns=200 * MS)
    console = Console(file=io.StringIO(), width=140)
    show("[none]", "1 live sessions", figures(Heard(0, (good,), (good,))), Watch(), console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "[none]: 1 live sessions" in text
    assert "first audio, audible" in text
    assert "50.0" in text
    assert "cancel" not in text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sessions", 0),
        ("sessions", 1.5),
        ("rate", 0.0),
        ("seconds", float("nan")),
        ("leave_share", 1.1),
        ("words_per_s", -1.0),
        ("utterances", 0),
        ("budget_ms", 0.0),
    ],
)
def test_bad_options_are_named(field: str, value: float) -> None:
    with pytest.raises(SpeechError) as caught:
        options(**{field: value})
    assert caught.value.field == field
    assert f"{field} is {value!r}; allowed: " in caught.value.message


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"texts": ()}, "texts"),
        ({"texts": ("one", " ")}, "texts"),
        ({"settings": ("none", "none")}, "settings"),
        ({"find_capacity": True, "rate": 2.0}, "rate"),
    ],
)
def test_options_that_do_not_go_together(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(SpeechError) as caught:
        options(**fields)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("where", "fields", "field"),
    [
        ({"protocol": "grpc"}, {}, "protocol"),
        ({"protocol": "native,native"}, {}, "protocol"),
        ({"protocol": "native,openai"}, {"settings": ("none", "auto")}, "settings"),
        ({"baseline": "hibari", "url": "http://x"}, {}, "url"),
        ({"baseline": "hibari"}, {"settings": ("none", "auto")}, "settings"),
        ({"protocol": "openai", "url": "http://x"}, {"words_per_s": 20.0}, "words_per_s"),
    ],
)
def test_places_that_cannot_be_measured(where: dict[str, Any], fields: dict[str, Any], field: str) -> None:
    with pytest.raises(SpeechError) as caught:
        Where(**where).check(options(**fields))
    assert caught.value.field == field


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    """The address of a server over the sine engine, a process of its own."""
    with asyncio.Runner() as runner:
        manager = serving((), SERVE_FAKE)
        yield runner.run(manager.__aenter__())
        runner.run(manager.__aexit__(None, None, None))


# So many utterances and not so many seconds: on a busy machine nobody may be heard to the end of two seconds.
LOAD = ("--utterances", "12", "--seconds", "600")


def bench(*arguments: str) -> tuple[dict[str, Any], str]:
    result = CliRunner().invoke(app, ["bench", "latency", "--warmup", "0", *arguments])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found, result.stderr


@pytest.fixture
def short(tmp_path: Path) -> str:
    """A file of texts that are soon over."""
    texts = tmp_path / "short.txt"
    texts.write_text("Hello there.\n\nHow are you?\n")
    return str(texts)


def test_protocols_are_measured_in_turn(served: str, short: str) -> None:
    found, _ = bench(
        "--url",
        served,
        "--protocol",
        "elevenlabs,openai,native",
        *LOAD,
        "--texts",
        short,
        "--sessions",
        "4",
        "--cancels",
        "0",
        "--json",
    )
    assert list(found["settings"]) == ["elevenlabs", "openai", "native"]
    assert found["setting"] == "native"
    for name, shown in found["settings"].items():
        assert shown["outcomes"] == {"complete": shown["utterances"]}, (name, shown["errors"])
        assert shown["first_playable_ms"]["p95"] is not None
    assert set(found["beside_native"]) == {"elevenlabs", "openai"}
    assert all(shown["pairs"]["n"] > 0 for shown in found["beside_native"].values())


def test_compare_ends_with_one_json_object(served: str, short: str, tmp_path: Path) -> None:
    picture = tmp_path / "out.png"
    arguments = ["--url", served, "--sessions", "3", *LOAD, "--texts", short, "--cancels", "4", "--plot", str(picture)]
    found, said = bench(*arguments, "--compare", "none,auto")
    assert list(found["settings"]) == ["none", "auto"]
    assert found["setting"] == "auto"
    for setting in (found, *found["settings"].values()):
        assert setting["sessions"] == 3
        assert setting["outcomes"] == {"complete": setting["utterances"]}
        assert setting["first_audio_ms"].keys() >= {"p50", "p95", "p99", "iqr"}
        assert setting["first_audio_ms"]["p50"] > 0
        assert setting["gap_ms"]["n"] > 0
        assert setting["end_to_end_ms"]["n"] == setting["measured"]
        assert setting["cancel_ms"]["n"] <= 4
        assert setting["loop_lag_ms"].keys() == {"p50", "p95", "p99"}
        assert setting["loop_lag_ms"]["p50"] >= 0
        assert setting["active_after"] == 0
        assert setting["rss_mb"]["last"] > 10
        assert "capacity" in setting
        assert "underruns" in setting
    assert "first audio, audible" in said
    assert "its default is measured" in said  # the sine engine has no drafter of the name auto
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_e36_open_loop_with_cancels_and_lost_connections(served: str, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("word " * 40 + "\n\nHello there.\n")
    found, said = bench(
        "--url", served, "--rps", "20", "--utterances", "40", "--seconds", "600", "--texts", str(texts), "--leave", "0.5",
        "--words", "10", "--cancels", "0", "--json",
    )  # fmt: skip
    assert found["rate"] == 20
    assert set(found["outcomes"]) <= {"complete", "left", "refused"}
    assert found["outcomes"]["left"] > 0
    assert found["free_ms"]["n"] >= found["outcomes"]["left"]  # a cancel may cross the end
    assert found["active_after"] == 0
    assert said == ""


def test_an_unknown_drafter_is_named(served: str) -> None:
    result = CliRunner().invoke(app, ["bench", "latency", "--url", served, "--compare", "none,best"])
    assert isinstance(result.exception, SpeechError)
    assert result.exception.message == "settings has 'best'; allowed: default, auto, none, model"


def test_a_server_that_does_not_come_up_is_an_error() -> None:
    async def start() -> None:
        async with serving((), (sys.executable, "-c", "raise SystemExit(3)")):
            pass

    with pytest.raises(SpeechError, match="exit code 3"):
        asyncio.run(start())


@pytest.mark.slow
def test_the_server_we_start_is_our_own(tiny_bundle: Path) -> None:
    found, _ = bench(
        "--bundle", str(tiny_bundle), "--dtype", "float32", "--sessions", "2", *LOAD, "--cancels", "2", "--nice", "0",
    )  # fmt: skip
    assert found["target"] == "tts-spec serve"
    assert set(found["outcomes"]) == {"complete"}
    assert found["audio_s"] > 0.5
    assert found["active_after"] == 0


@pytest.mark.slow
def test_i59_three_hundred_utterances_with_leavers_lose_no_slot_and_no_memory(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("Hello there, my friend.\nHow are you today?\n")
    found, _ = bench(
        "--bundle", str(tiny_bundle), "--dtype", "float32", "--texts", str(texts), "--sessions", "8", "--most", "8",
        "--utterances", "300", "--seconds", "600", "--leave", "0.2", "--cancels", "0", "--nice", "0", "--json",
    )  # fmt: skip
    assert found["utterances"] == 300
    assert found["outcomes"]["left"] > 20, found["outcomes"]
    assert set(found["outcomes"]) <= {"complete", "left", "refused"}
    assert found["free_ms"]["n"] >= found["outcomes"]["left"]  # a cancel may cross the end
    assert found["active_after"] == 0
    assert found["rss_mb"]["growth"] < 0.02, found["rss_mb"]
