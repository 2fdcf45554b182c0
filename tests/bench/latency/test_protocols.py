"""Protocols in turn, in virtual time: the same text over each of them, the order changing, and who is later by how much."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from tests.bench.latency.test_load import Clockwork
from tests.virtual_time import VirtualTime, finish
from tts_spec.bench.latency.load import Heard, Script
from tts_spec.bench.latency.measure import measure
from tts_spec.bench.latency.options import LatencyOptions
from tts_spec.bench.latency.protocols import InTurn, beside_native, by_protocol
from tts_spec.bench.latency.report import show_beside
from tts_spec.bench.latency.utterance import Leave, Request

NAMES = ("elevenlabs", "native", "openai")


def heard(virtual: VirtualTime, first_s: dict[str, float], **fields: Any) -> Heard:
    target = InTurn({name: Clockwork(virtual, first_s=first_s[name]) for name in NAMES})
    options = LatencyOptions(texts=("One.", "Two."), cancels=0, utterances=24, warmup_s=0, **fields)
    quiet = Console(file=io.StringIO())
    return finish(virtual, measure(target, None, options, None, quiet, clock=virtual.ns, protocols=NAMES)).heard


def test_each_text_is_spoken_over_every_protocol_and_none_is_always_first() -> None:
    script = Script(("One.", "Two."), Request(""), leave_share=0.5, protocols=NAMES)
    asked = [script.request(k) for k in range(18)]
    for number in range(6):
        together = asked[3 * number : 3 * number + 3]
        assert {each.protocol for each in together} == set(NAMES)
        assert {(each.text, each.seed) for each in together} == {(("One.", "Two.")[number % 2], number)}
        assert len({(each.leave, each.leave_after_s) for each in together}) == 1
    assert {each.protocol for each in asked[::3]} == set(NAMES)


def test_what_is_later_is_told_with_percentiles_and_pairs(virtual: VirtualTime) -> None:
    found = heard(virtual, {"elevenlabs": 0.103, "native": 0.1, "openai": 0.098}, sessions=2)
    parts = by_protocol(found, NAMES)
    assert [len(parts[name].everything) for name in NAMES] == [8, 8, 8]
    compared = beside_native(found, NAMES)
    assert list(compared) == ["elevenlabs", "openai"]
    for name, later_ms in (("elevenlabs", 3.0), ("openai", -2.0)):
        assert compared[name].p50 == pytest.approx(later_ms)
        assert compared[name].p95 == pytest.approx(later_ms)
        assert compared[name].pairs.n == 8
        assert compared[name].pairs.max == pytest.approx(later_ms)
    said = Console(file=io.StringIO(), width=100)
    show_beside(compared, said)
    assert "elevenlabs" in said.file.getvalue()  # type: ignore[attr-defined]


def test_without_a_common_utterance_nothing_is_compared(virtual: VirtualTime) -> None:
    found = heard(virtual, dict.fromkeys(NAMES, 0.1))
    alone = by_protocol(found, NAMES)["openai"]
    assert beside_native(alone, NAMES) == {}


def test_only_what_all_can_do_is_done_to_leave(virtual: VirtualTime) -> None:
    other = Clockwork(virtual)
    other.leaves = (Leave.DISCONNECT, Leave.CANCEL)  # type: ignore[assignment]
    assert InTurn({"a": other, "b": Clockwork(virtual)}).leaves == (Leave.CANCEL,)
