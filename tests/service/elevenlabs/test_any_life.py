"""Any client and any engine over one multi-context socket: a state machine that says whatever comes to mind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from service import actions as wire
from service.actions import Action
from service.elevenlabs.messages import AudioFrame, ErrorFrame
from service.elevenlabs.sockets import MAX_CONTEXTS, MultiStreamInput
from service.speech import Piece
from tests.service.elevenlabs.test_sockets import AUDIO, LAST, SETTINGS, feed
from tts_spec.types import SpeechError

MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "text": st.sampled_from(["", " ", "Hello. ", "and "]),
        "context_id": st.sampled_from(["a", "b", "c", "d", "e", "f"]),
        "flush": st.booleans(),
        "close_context": st.booleans(),
        "cancel": st.booleans(),
        "close_socket": st.sampled_from([False] * 9 + [True]),
        "voice_settings": st.sampled_from([None, {}, {"stability": 0.5}]),
    },
)


class AnyLife(RuleBasedStateMachine):
    """Any client and any engine over one multi-context socket."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = MultiStreamInput(replace(SETTINGS, max_text_chars=10_000))
        self.actions: list[Action] = []
        self.alive: set[str] = set()

    def _do(self, actions: Sequence[Action]) -> None:
        if any(isinstance(each, wire.Close) for each in self.actions):
            assert not actions, "something after the close"
        for each in actions:
            if isinstance(each, wire.Open):
                assert each.key not in {old.key for old in self.actions if isinstance(old, wire.Open)}
                self.alive.add(each.key)
            elif isinstance(each, wire.Feed | wire.Flush | wire.End):
                assert each.key in self.alive
            elif isinstance(each, wire.Over | wire.Cancel):
                self.alive.discard(each.key)
            self.actions.append(each)

    @rule(message=MESSAGES)
    def client_says(self, message: dict[str, Any]) -> None:
        self._do(feed(self.machine, **message))

    @rule(data=st.data(), piece=st.sampled_from([AUDIO, LAST, SpeechError("model_broke", "m")]))
    def engine_speaks(self, data: st.DataObject, piece: Piece | SpeechError) -> None:
        if self.alive:
            self._do(self.machine.event(piece, data.draw(st.sampled_from(sorted(self.alive)))))

    @invariant()
    def few_streams_live_and_each_is_told_its_end_once(self) -> None:
        assert len(self.alive) <= MAX_CONTEXTS
        ends: dict[str, int] = {}
        for each in self.actions:
            if isinstance(each, wire.Send) and isinstance(each.message, AudioFrame) and each.message.isFinal:
                ends[each.key] = ends.get(each.key, 0) + 1
            if isinstance(each, wire.Send) and isinstance(each.message, ErrorFrame):
                assert each.message.message
                assert each.message.error
        assert all(count == 1 for count in ends.values())
        if any(isinstance(each, wire.Close) for each in self.actions):
            assert not self.alive


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(deadline=None, max_examples=80, stateful_step_count=20)
