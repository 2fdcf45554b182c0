"""Small random-weight models, random scripts, drafters good and bad, and rounds run to the end of a script."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from models.exit_head import ExitConfig, ExitHead, PackedExit
from models.exit_stream import ExitBatch
from models.lm_stream import LmBatch, LmStream, StreamInput
from models.medusa import MedusaConfig, MedusaHeads, PackedMedusa
from models.speech_lm import OFFSETS, ConditionConfig, SpeechLm, SpeechLmConfig
from models.transformer_config import TransformerConfig
from tts_spec.speculate.drafters import ModelDrafter, NoDrafter
from tts_spec.speculate.early_exit import EarlyExitDrafter
from tts_spec.speculate.lookahead import LookaheadDrafter
from tts_spec.speculate.medusa import MedusaDrafter
from tts_spec.speculate.round import Draft, Drafter, Round, StreamState, legal_prefix, speculative_round
from tts_spec.speculate.sampling import Sampler, SamplingOptions
from tts_spec.speculate.script import Script, ScriptState, Vocabulary

SYMBOLS = 20
WINDOW = 32
VOCABULARY = Vocabulary(codebooks=4, codebook_size=32)

RoundFunction = Callable[[LmStream, Drafter, Script, Sampler, StreamState, int], Round]
MakeDrafter = Callable[[Script, Sampler, LmStream, LmStream], Drafter]  # given a small model's stream and the target's


@functools.cache
def small_lm(
    width: int = 64, layers: int = 2, seed: int = 1, dtype: torch.dtype = torch.float32, *, conditioned: bool = False
) -> SpeechLm:
    """Random weights of a size that gives every decision some 10 likely options and makes the context matter.

    ``conditioned``: as a drafter of ``small_lm()`` that takes its states.
    """
    torch.manual_seed(seed)
    transformer = TransformerConfig(width=width, layers=layers, heads=4, kv_heads=2, hidden=2 * width, window=WINDOW)
    config = SpeechLmConfig(
        SYMBOLS,
        voices=2,
        codebooks=4,
        codebook_size=VOCABULARY.codebook_size,
        transformer=transformer,
        condition=ConditionConfig(64, taps=(1,)) if conditioned else None,
    )
    lm = SpeechLm(config)
    with torch.no_grad():
        for name, weight in lm.named_parameters():
            if "heads" in name:
                weight.normal_(std=1.5 * width**-0.5)
            elif "transformer" in name and weight.ndim == 2:
                weight.normal_(std=weight.shape[1] ** -0.5)
            elif weight.ndim == 2:
                weight.normal_(std=0.5)
    return lm.to(dtype).eval()


@dataclass(frozen=True)
class Text:
    """What a stream is to say: one entry a phoneme."""

    windows: list[list[int]]
    caps: list[int]
    ends: list[bool]

    def append_to(self, script: Script, streams: Sequence[LmStream], until: int) -> None:
        """Let the phonemes up to ``until`` arrive."""
        new = slice(len(script), until)
        for stream in streams:
            stream.extend(self.windows[new])
        for cap, end in zip(self.caps[new], self.ends[new], strict=True):
            script.append(cap, end=end)


def random_text(rng: random.Random, sentences: int, phonemes: int = 4, cap: int = 4) -> Text:
    """Sentences of 1 to ``phonemes`` phonemes with random windows."""
    text = Text([], [], [])
    for _ in range(sentences):
        count = rng.randint(1, phonemes)
        text.windows.extend([rng.randrange(SYMBOLS) for _ in OFFSETS] for _ in range(count))
        text.caps.extend(rng.randint(1, cap) for _ in range(count))
        text.ends.extend(i == count - 1 for i in range(count))
    return text


def random_options(rng: random.Random, temperature: float) -> SamplingOptions:
    """Every other filter on or off."""
    return SamplingOptions(
        temperature,
        top_k=rng.choice([0, 0, 5, 12]),
        top_p=rng.choice([1.0, 1.0, 0.7, 0.95]),
        repetition_penalty=rng.choice([1.0, 1.2, 1.6]),
    )


def lm_stream(lm: SpeechLm) -> LmStream:
    return LmBatch(lm, 1, taps=(1,)).open([0.25, 0.75], speed=1.25)


@dataclass
class Outcome:
    """A finished stream and what is left of it."""

    script: Script
    sampler: Sampler
    target: LmStream
    states: list[StreamState] = field(default_factory=lambda: [StreamState()])
    rounds: list[Round] = field(default_factory=list)

    @property
    def decisions(self) -> list[int]:
        return [decision for each in self.rounds for decision in each.decisions]

    @property
    def acceptance(self) -> float:
        return sum(each.accepted for each in self.rounds) / sum(each.drafted for each in self.rounds)

    def inputs(self) -> list[StreamInput]:
        """Every committed input from position 0, the pending one last."""
        state = StreamState()
        fed = [state.inputs[-1]]
        for decision in self.decisions:
            state = state.after(self.script, decision)
            fed.append(state.inputs[-1])
        return fed


def run(
    text: Text,
    make_drafter: MakeDrafter,
    gamma: int | Callable[[], int],
    options: SamplingOptions,
    seed: int,
    *,
    target: SpeechLm | None = None,
    arrivals: random.Random | None = None,
    round_function: RoundFunction = speculative_round,
    limit: int = 20_000,
) -> Outcome:
    """Rounds until all of ``text`` is spoken; with ``arrivals`` the text comes in at random moments instead of at once.

    Stops after ``limit`` decisions: a planted bug may never come to an end.
    """
    stream = lm_stream(target or small_lm())
    small = lm_stream(small_lm(width=32, layers=1, seed=2, conditioned=True))
    script = Script.empty(VOCABULARY)
    sampler = Sampler(options, VOCABULARY, seed)
    drafter = make_drafter(script, sampler, small, stream)
    outcome = Outcome(script, sampler, stream)
    state, count, total = StreamState(), 0, len(text.caps)
    while state.script.phoneme < total and count < limit:
        if len(script) < total and (arrivals is None or script.waits(state.script) or arrivals.random() < 0.2):
            more = total if arrivals is None else arrivals.randint(1, 3)
            text.append_to(script, (stream, small), min(total, len(script) + more))
        done = round_function(stream, drafter, script, sampler, state, gamma if isinstance(gamma, int) else gamma())
        state = done.state
        count += len(done.decisions)
        outcome.rounds.append(done)
        outcome.states.append(state)
    return outcome


def plain(text: Text, options: SamplingOptions, seed: int, target: SpeechLm | None = None) -> Outcome:
    """What every drafter must reproduce."""
    return run(text, no_drafter, 0, options, seed, target=target)


def no_drafter(script: Script, sampler: Sampler, small: LmStream, target: LmStream) -> Drafter:
    return NoDrafter()


def model_drafter(script: Script, sampler: Sampler, small: LmStream, target: LmStream) -> Drafter:
    return ModelDrafter(small, script, sampler, likely_enough=0.0)


def sure_drafter(script: Script, sampler: Sampler, small: LmStream, target: LmStream) -> Drafter:
    return ModelDrafter(small, script, sampler)


def lookahead_drafter(script: Script, sampler: Sampler, small: LmStream, target: LmStream) -> Drafter:
    return LookaheadDrafter(script)


def feature_drafter(script: Script, sampler: Sampler, small: LmStream, target: LmStream) -> Drafter:
    return ModelDrafter(small, script, sampler, tell=small.told, likely_enough=0.0)


@functools.cache
def small_medusa(target: SpeechLm) -> PackedMedusa:
    """Random heads, not far from the target's own at the state's position."""
    torch.manual_seed(3)
    width = target.config.transformer.width
    medusa = MedusaHeads(MedusaConfig(width))
    for weight in medusa.matrices:
        nn.init.normal_(weight, std=width**-0.5)
    return PackedMedusa(medusa.to(target.tokens.weight.dtype), target)


def medusa_drafter(script: Script, sampler: Sampler, small: LmStream, target: LmStream) -> Drafter:
    return MedusaDrafter(small_medusa(target.batch.lm), script, sampler)


@functools.cache
def small_exit(target: SpeechLm) -> PackedExit:
    """A random exit after the first of the target's layers."""
    torch.manual_seed(4)
    width = target.config.transformer.width
    head = ExitHead(ExitConfig(width, layers=1, hidden=width))
    nn.init.normal_(head.gate_up.weight, std=width**-0.5)
    nn.init.normal_(head.down.weight, std=width**-0.5)
    return PackedExit(head.to(target.tokens.weight.dtype), target)


def exit_drafter(script: Script, sampler: Sampler, small: LmStream, target: LmStream) -> Drafter:
    leaves = ExitBatch(target.batch, small_exit(target.batch.lm)).open(target)
    return EarlyExitDrafter(leaves, script, sampler, likely_enough=0.0)


def sure_exit_drafter(script: Script, sampler: Sampler, small: LmStream, target: LmStream) -> Drafter:
    leaves = ExitBatch(target.batch, small_exit(target.batch.lm)).open(target)
    return EarlyExitDrafter(leaves, script, sampler)


def other_noise_drafter(script: Script, sampler: Sampler, small: LmStream, target: LmStream) -> Drafter:
    return ModelDrafter(small, script, Sampler(sampler.options, sampler.vocabulary, seed=999_983))


class SwitchingDrafter:
    """Another drafter from round to round, as ``auto`` may have it; which, the position says."""

    name = "switching"

    def __init__(self, script: Script, sampler: Sampler, small: LmStream, target: LmStream) -> None:
        makers = (no_drafter, sure_drafter, lookahead_drafter, medusa_drafter, sure_exit_drafter)
        self._drafters = [make(script, sampler, small, target) for make in makers]

    def propose(self, state: StreamState, count: int) -> Draft:
        rng = random.Random(state.position // 9)  # long enough for one with a cache to fall behind
        return rng.choice(self._drafters).propose(state, count)


class RandomIdDrafter:
    """Any ids at all, cut at the first that is not legal."""

    name = "random ids"

    def __init__(self, script: Script, sampler: Sampler, small: LmStream, target: LmStream) -> None:
        self._script = script
        self._rng = random.Random(5)

    def propose(self, state: StreamState, count: int) -> Draft:
        ids = [self._rng.randrange(VOCABULARY.end + 1) for _ in range(count)]
        return Draft.line(legal_prefix(self._script, state, ids))


class RandomLegalDrafter:
    """Legal decisions, else random; at a boundary often ADVANCE or END."""

    name = "random legal"

    def __init__(self, script: Script, sampler: Sampler, small: LmStream, target: LmStream) -> None:
        self._script = script
        self._rng = random.Random(6)

    def propose(self, state: StreamState, count: int) -> Draft:
        return Draft.line(list(self._walk(state, count)))

    def _walk(self, state: StreamState, count: int) -> Iterator[int]:
        script, at = self._script, state.script
        for _ in range(count):
            if script.waits(at):
                return
            decision = random_decision(script, at, self._rng)
            yield decision
            at = script.after(at, decision)


class TailDrafter(RandomLegalDrafter):
    """The target's own samples past the last mismatch, then random ones, so that there are such samples."""

    name = "tail"

    def propose(self, state: StreamState, count: int) -> Draft:
        drafts = legal_prefix(self._script, state, state.tail[:count])
        at = state
        for draft in drafts:
            at = at.after(self._script, draft)
        return Draft.line(drafts + list(self._walk(at, count - len(drafts))))


class TreeDrafter:
    """A random tree of random legal decisions, with the tail or, where the test knows them, the right ones on some branch."""

    name = "tree"

    def __init__(self, script: Script, sampler: Sampler, small: LmStream, target: LmStream) -> None:
        self._script = script
        self._rng = random.Random(8)
        self._small = ModelDrafter(
            small, script, sampler, likely_enough=0.0
        )  # such a line fills what is asked for: no rivals

    def propose(self, state: StreamState, count: int) -> Draft:
        good = self._small.propose(state, count // 2).decisions
        nodes, decisions, parents = [state], list[int](), list[int]()
        line = [0]  # nodes of the line of good guesses
        taken: set[tuple[int, int]] = set()
        for _ in range(20 * count):
            if len(decisions) == count:
                break
            extend = len(line) <= len(good) and self._rng.random() < 0.5
            parent = line[-1] if extend else self._rng.randrange(len(nodes))
            at = nodes[parent].script
            if self._script.waits(at):
                continue
            guess = good[len(line) - 1] if extend else random_decision(self._script, at, self._rng)
            if (parent, guess) in taken:
                continue
            taken.add((parent, guess))
            if extend:
                line.append(len(nodes))
            decisions.append(guess)
            parents.append(parent - 1)
            nodes.append(nodes[parent].after(self._script, guess))
        return Draft(decisions, parents)


class FixedDrafter:
    """Knows the whole stream beforehand."""

    name = "fixed"

    def __init__(self, decisions: Sequence[int]) -> None:
        self._decisions = list(decisions)

    def propose(self, state: StreamState, count: int) -> Draft:
        return Draft.line(self._decisions[state.position : state.position + count])


def random_decision(script: Script, at: ScriptState, rng: random.Random) -> int:
    """A legal decision; leaving the phoneme is as likely as staying."""
    allowed = script.allowed(at)
    kinds = [name for name, permitted in zip(allowed._fields, allowed, strict=True) if permitted]
    kind = rng.choice(kinds)
    if kind == "audio":
        return at.due * VOCABULARY.codebook_size + rng.randrange(VOCABULARY.codebook_size)
    return VOCABULARY.advance if kind == "advance" else VOCABULARY.end


DRAFTERS: dict[str, MakeDrafter] = {
    "none": no_drafter,
    "model": model_drafter,
    "model while sure": sure_drafter,
    "other noise": other_noise_drafter,
    "tail": TailDrafter,
    "tree": TreeDrafter,
    "lookahead": lookahead_drafter,
    "feature": feature_drafter,
    "medusa": medusa_drafter,
    "early-exit": exit_drafter,
    "early-exit while sure": sure_exit_drafter,
    "switching": SwitchingDrafter,
    "random ids": RandomIdDrafter,
    "random legal": RandomLegalDrafter,
}
