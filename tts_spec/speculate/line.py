"""A line of drafts in one compiled call: pass, choice and script in turn, with no Python between them.

The loop of ``LineDrafter`` for a model whose passes are compiled; what is decided, and when a line ends, is written in ``sampling``,
``script`` and ``chance`` alone. Knows arrays only.
"""

from __future__ import annotations

import math

import numba
import numpy as np
import numpy.typing as npt
from numba.extending import register_jitable

from models.kernels import Ints, Network, follow
from models.products import Floats
from tts_spec.speculate.sampling import best_two, seen_options
from tts_spec.speculate.script import allowed_at, decision_of, state_after


@register_jitable
def chance(margin: float) -> float:
    """Of a match with the target, of a guess whose noisy score lies so far above the next one. Measured on the starter voice (LOG.md);
    where another voice differs it costs time, no exactness."""
    return 1.0 - 0.72 * math.exp(-0.62 * margin)


@numba.njit(cache=True, nogil=True)
def draft_line(
    network: Network,
    entry: Floats,
    inside: Floats,
    dropped: int,
    items: Ints,  # [n, 4] inputs not fed yet: token or below 0, phoneme, frames, due
    slot: int,
    start: int,  # position in the cache of the first of them
    told: Floats,  # [n + most, width], added to these and to those of the drafts; or [0, width]
    codebooks: int,
    size: int,
    caps: Ints,  # of the last input's phoneme and those after it that are known
    ends: npt.NDArray[np.bool_],
    noise: Floats,  # [most, options]
    recent: Ints,  # [HISTORY] tokens of the inputs up to that of the first draft, the oldest first
    penalty: np.float32,
    temperature: np.float32,
    top_k: int,
    top_p: float,
    right: float,  # chance that all before the line is right
    likely_enough: float,
    fed: Ints,  # [most, 4] gets the inputs the drafts make
    guesses: Ints,  # [most, 2] gets decisions and what they would be without those
    margins: npt.NDArray[np.float64],  # [most] of ``Sampler.choose_two``
) -> int:
    """Drafts, at least one and at most ``most``, while they are right with a chance of ``likely_enough`` -> their number."""
    first, most, given = items[-1, 1], len(guesses), len(items)
    phoneme, frames, due = first, items[-1, 2], items[-1, 3]
    tokens = np.empty(len(recent) + most, np.int64)
    tokens[: len(recent)] = recent
    count = 0
    while True:
        added = told[: min(given, len(told))] if count == 0 else told[given + count - 1 : given + count]
        logits = follow(network, entry, inside, dropped, items, slot, start, added)
        start += len(items)
        audio, advance, end = allowed_at(frames, due, caps[phoneme - first], ends[phoneme - first])
        seen = np.empty(0, np.int64)
        if penalty != 1:
            seen = seen_options(tokens[count : count + len(recent)], due * size, size)
        best, second, margin = best_two(
            logits, noise[count], audio, advance, end, seen, penalty, temperature, top_k, top_p
        )
        decision = decision_of(best, due, codebooks, size)
        guesses[count, 0], guesses[count, 1] = decision, decision_of(second, due, codebooks, size)
        margins[count] = margin
        right *= chance(margin)
        phoneme, frames, due = state_after(phoneme, frames, due, decision, codebooks, size)
        items = fed[count : count + 1]
        items[0, 0] = decision if decision < codebooks * size else -1
        items[0, 1], items[0, 2], items[0, 3] = phoneme, frames, due
        tokens[len(recent) + count] = items[0, 0]
        count += 1
        if count == most or right < likely_enough or phoneme - first >= len(caps):
            return count
