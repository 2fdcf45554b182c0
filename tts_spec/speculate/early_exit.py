"""The target drafts for itself: its first layers and an exit guess (LayerSkip, Elhoushi et al. 2024), its other layers verify.

Drafting writes the target's own cache at the positions drafted, so there is nothing to catch up with and nothing is run twice. Knows
decisions; knows no cache.
"""

from __future__ import annotations

from collections.abc import Callable

from models.exit_stream import ExitStream
from tts_spec.speculate.drafters import LineDrafter, Row
from tts_spec.speculate.round import StreamState
from tts_spec.speculate.sampling import Sampler
from tts_spec.speculate.script import Script

LIKELY_ENOUGH = 0.5  # see ``drafters``: two of the target's layers cost more than a small model


class EarlyExitDrafter(LineDrafter):
    """See the module. ``exit`` belongs to the stream of the target that verifies."""

    name = "early-exit"

    def __init__(
        self, exit: ExitStream, script: Script, sampler: Sampler, *, likely_enough: float = LIKELY_ENOUGH
    ) -> None:
        super().__init__(script, sampler, likely_enough)
        self._exit = exit

    def _extend(
        self,
        state: StreamState,
        drafts: list[int],
        count: int,
        choose: Callable[[Row, StreamState], int],
        worth_it: Callable[[], bool],
    ) -> list[int]:
        """See ``LineDrafter``. The first pass takes the pending input and the drafts there are, every later one the draft before."""
        states = [state]
        for draft in drafts:
            states.append(states[-1].after(self._script, draft))
        begun = 0
        while len(drafts) < count and worth_it() and not self._script.waits(states[-1].script):
            new = [each.inputs[-1] for each in states[begun:]]
            logits = self._exit.forward(new, state.position + begun)[-1]
            begun = len(states)
            drafts.append(choose(logits, states[-1]))
            states.append(states[-1].after(self._script, drafts[-1]))
        return drafts
