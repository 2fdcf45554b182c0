"""The one function that turns (logits, what is legal, history, position) into a decision.

Plain decoding, verification and drafting all call ``Sampler.choose`` in coupled mode; in ratio mode all call ``Sampler.distribution`` and
``draw`` from it. Nothing else samples. Order: legality mask, repetition penalty
(Keskar et al. 2019), temperature, top-k, top-p (Holtzman et al. 2020), plus the position's Gumbel noise, argmax. It sees one row at a
time, so a row's decision cannot depend on its neighbours. Knows no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from models.lm_stream import StreamInput
from tts_spec.speculate.noise import GumbelNoise, UniformNoise
from tts_spec.speculate.script import Allowed, Vocabulary

Distribution = npt.NDArray[np.float64]  # [codebook_size + 2]

_NONE_SEEN = np.zeros(0, np.int64)
HISTORY = 64  # inputs the repetition penalty looks back
GREEDY_BELOW = (
    1e-4  # a lower temperature is 0: the noise, at most 17 times it, decides nothing, and float32 would overflow
)


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """Deployed sampling; every field is a number in the range its comment gives."""

    temperature: float = 0.8  # 0 .. 2; 0 = the most probable decision, no noise
    top_k: int = 0  # 0 = off
    top_p: float = 1.0  # 0 < top_p <= 1; 1 = off
    repetition_penalty: float = 1.0  # 1 .. 2; 1 = off

    def __post_init__(self) -> None:
        checks = (
            ("temperature", 0 <= self.temperature <= 2, "0 to 2"),
            ("top_k", self.top_k >= 0, "0 or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 up to 1"),
            ("repetition_penalty", 1 <= self.repetition_penalty <= 2, "1 to 2"),
        )
        for name, good, allowed in checks:
            if not good:
                raise ValueError(f"{name} is {getattr(self, name)!r}; allowed: {allowed}")


@numba.njit(cache=True, nogil=True)
def _scores(
    logits: npt.NDArray[np.float32],
    audio: bool,
    advance: bool,
    end: bool,
    seen: npt.NDArray[np.int64],
    penalty: np.float32,
    temperature: np.float32,
    top_k: int,
    top_p: float,
) -> npt.NDArray[np.float32]:
    """See ``Sampler.scores``. Compiled: it is called for every draft and every row of a pass. ``temperature`` 0 = greedy."""
    options, size = len(logits), len(logits) - 2
    scores = logits.copy()
    if not audio:
        scores[:size] = -np.inf
    if not advance:
        scores[size] = -np.inf
    if not end:
        scores[size + 1] = -np.inf
    for option in seen:
        value = scores[option]
        scores[option] = value / penalty if value > 0 else value * penalty
    if temperature == 0:
        return scores
    for option in range(options):
        scores[option] /= temperature
    if 0 < top_k < options:
        kth = np.partition(scores, options - top_k)[options - top_k]
        for option in range(options):
            if scores[option] < kth:
                scores[option] = -np.inf
    if top_p < 1.0:
        falling = np.sort(scores)[::-1].astype(np.float64)
        weights = np.exp(falling - falling[0])
        enough, before, last = top_p * weights.sum(), 0.0, 0  # ``before``: mass of the strictly better ones
        while last < options and before < enough:
            before += weights[last]
            last += 1
        for option in range(options):
            if scores[option] < falling[last - 1]:
                scores[option] = -np.inf
    return scores


@numba.njit(cache=True, nogil=True)
def best_two(
    logits: npt.NDArray[np.float32],
    noise: npt.NDArray[np.float32],
    audio: bool,
    advance: bool,
    end: bool,
    seen: npt.NDArray[np.int64],
    penalty: np.float32,
    temperature: np.float32,
    top_k: int,
    top_p: float,
) -> tuple[int, int, float]:
    """Of the scores plus ``noise``: (index of the greatest, the first of equals; index of the next one; how far the one lies above the
    other)."""
    scores = _scores(logits, audio, advance, end, seen, penalty, temperature, top_k, top_p)
    if temperature != 0:
        scores += noise
    best, second = 0, 1
    if scores[1] > scores[0]:
        best, second = 1, 0
    for option in range(2, len(scores)):
        if scores[option] > scores[best]:
            best, second = option, best
        elif scores[option] > scores[second]:
            second = option
    return best, second, scores[best] - scores[second]


@numba.njit(cache=True, nogil=True)
def seen_options(tokens: npt.NDArray[np.int64], first: int, size: int) -> npt.NDArray[np.int64]:
    """Options of the codebook whose tokens begin at ``first`` that are among ``tokens``, each once."""
    seen = np.empty(len(tokens), np.int64)
    count = 0
    for token in tokens:
        option = token - first
        if 0 <= option < size and not np.any(seen[:count] == option):
            seen[count] = option
            count += 1
    return seen[:count]


class Sampler:
    """Sampling of one stream. ``choose`` depends on its arguments, the options and the stream's key alone."""

    def __init__(self, options: SamplingOptions, vocabulary: Vocabulary, seed: int, stream: int = 0) -> None:
        self.options = options
        self.vocabulary = vocabulary
        self._noise = GumbelNoise(seed, stream, vocabulary.codebook_size + 2)
        self.uniform = UniformNoise(seed, stream)
        self.filters = (  # of ``best_two``, its last four
            np.float32(options.repetition_penalty),
            np.float32(options.temperature if options.temperature >= GREEDY_BELOW else 0.0),
            options.top_k,
            options.top_p,
        )

    def scores(
        self, logits: npt.NDArray[np.float32], allowed: Allowed, history: Sequence[StreamInput]
    ) -> npt.NDArray[np.float32]:
        """Deployed log-probabilities up to a constant, float32 [codebook_size + 2]; -inf = cannot be chosen (temperature above 0)."""
        penalty, temperature, top_k, top_p = self.filters
        scores: npt.NDArray[np.float32] = _scores(
            logits, allowed.audio, allowed.advance, allowed.end, self._seen(history), penalty, temperature, top_k, top_p
        )
        return scores

    def choose(
        self, logits: npt.NDArray[np.float32], allowed: Allowed, history: Sequence[StreamInput], position: int
    ) -> int:
        """The decision at ``position``.

        Args:
            logits: float32 [codebook_size + 2] of the due codebook; the last two are ADVANCE and END.
            allowed: what the script permits there; at least one kind.
            history: committed and, while verifying, drafted inputs up to ``position``, that one last; it names the codebook due.
                The penalty counts the codec tokens among the last ``HISTORY``.
            position: index of the decision in the stream; keys the noise.
        """
        return self.choose_two(logits, allowed, history, position)[0]

    def choose_two(
        self, logits: npt.NDArray[np.float32], allowed: Allowed, history: Sequence[StreamInput], position: int
    ) -> tuple[int, int, float]:
        """``choose``, the decision it would be without that one, and by how much the first's score, noise included, lies above the
        second's (inf where there is no second): how sure the first is."""
        penalty, temperature, top_k, top_p = self.filters
        best, second, margin = best_two(
            logits, self._noise.at(position), allowed.audio, allowed.advance, allowed.end, self._seen(history), penalty,
            temperature, top_k, top_p,
        )  # fmt: skip
        due = history[-1].due
        return self.vocabulary.decision(best, due), self.vocabulary.decision(second, due), margin

    def _seen(self, history: Sequence[StreamInput]) -> npt.NDArray[np.int64]:
        """Options of the codebook due that the penalty falls on."""
        if self.options.repetition_penalty == 1.0:
            return _NONE_SEEN
        size = self.vocabulary.codebook_size
        tokens = np.array([item.token for item in history[-HISTORY:]])
        seen: npt.NDArray[np.int64] = seen_options(tokens, history[-1].due * size, size)
        return seen

    def noise(self, position: int, count: int) -> npt.NDArray[np.float32]:
        """What is added to the scores of ``count`` positions from ``position`` on: [count, codebook_size + 2]."""
        return self._noise.line(position, count)

    def distribution(
        self, logits: npt.NDArray[np.float32], allowed: Allowed, history: Sequence[StreamInput]
    ) -> Distribution:
        """The probabilities ``choose`` draws from, for ratio mode; temperature 0 puts all on the best."""
        scores = self.scores(logits, allowed, history).astype(np.float64)
        weights: Distribution = np.zeros_like(scores)
        best = int(scores.argmax())
        if self.options.temperature < GREEDY_BELOW:
            weights[best] = 1.0
        else:
            np.exp(scores - scores[best], out=weights)
        weights /= weights.sum()
        return weights


def draw(weights: Distribution, uniform: float) -> int:
    """An option with a chance proportional to its weight, never one of weight 0; ``uniform`` lies in [0, 1), some weight is above 0."""
    cumulative = weights.cumsum()
    return int(cumulative.searchsorted(uniform * cumulative[-1], side="right"))
