"""The same weights through transformers' plain and assisted generation and through our rounds, on the same plain stream, interleaved.

What is compared is the cost of a token, not speech. transformers knows neither the woven stream (phonemes forced by a script, several
embeddings an input) nor a head per codebook, so both sides run what both can: target and drafter as Llama checkpoints over one joint
vocabulary [codec tokens | ADVANCE, END | phonemes], where a phoneme is the embedding of its symbol and the speaker's vector is added to
every embedding; the prompt is the sentence's phonemes, after it come codec tokens, codebook after codebook, for a fixed number of frames,
never ADVANCE or END. transformers masks the codebooks that are not due with a logits processor, in target and assistant; we compute only
the rows of the head that are due. Every matrix of the layers is the starter's own, the window is the whole stream, the prompt counts for
both. What the layers were trained on is missing, so that acceptance here says nothing of the voice.
Knows checkpoints, rounds and clocks; needs the extra ``test`` for transformers.
"""

from __future__ import annotations

import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from models.causal_lm import CausalLm
from models.evaluation.sentences import held_out_sentences
from models.lm_stream import Logits, StreamInput
from models.packed import PackedMatrix
from models.products import Floats
from models.public_checkpoint import load_checkpoint, save_checkpoint
from models.slots import MAX_ROWS
from models.speech_lm import NO_TOKEN, OFFSETS, SpeechLm
from tts_spec.engine.passage import Passage
from tts_spec.speculate.drafters import ModelDrafter, NoDrafter
from tts_spec.speculate.round import StreamState, speculative_round
from tts_spec.speculate.sampling import Sampler, SamplingOptions
from tts_spec.speculate.script import Script, Vocabulary
from tts_spec.synthesizer import Synthesizer
from tts_spec.types import SpeechError

DRAFTER = "model"
GREEDY_FRAMES = 8  # of the check that all say the same

# (prompt, frames, sampling, seed) -> tokens, passes of the target
Generate = Callable[[Sequence[int], int, SamplingOptions, int], tuple[list[int], int]]


def joint_lm(lm: SpeechLm, positions: int) -> CausalLm:
    """``lm`` as a plain model over the joint vocabulary, voice 0 at the teacher's pace, for streams of at most ``positions``."""
    config = lm.config
    current = OFFSETS.index(0) * config.symbols
    transformer = lm.config.transformer
    made = CausalLm(dataclasses.replace(transformer, window=positions), config.end + 1 + config.symbols)
    with torch.no_grad():
        speaker = lm.speaker(torch.eye(1, config.voices), torch.ones(1))[0].float()
        phonemes = lm.around.weight[current : current + config.symbols].float()
        ends = torch.zeros(2, transformer.width)
        made.tokens.weight.copy_(torch.cat([lm.tokens.weight.float(), ends, phonemes]) + speaker)
        heads = [cast(nn.Linear, head).weight.float() for head in lm.heads]
        size = config.codebook_size
        rows = [*(head[:size] for head in heads), heads[0][size:], torch.zeros(config.symbols, transformer.width)]
        made.head.weight.copy_(torch.cat(rows))
        made.transformer.load_state_dict(lm.transformer.state_dict())
    return made.to(lm.tokens.weight.dtype).eval()


class PlainModel:
    """A joint model with its head cut by codebook."""

    def __init__(self, lm: CausalLm, vocabulary: Vocabulary) -> None:
        self.lm = lm
        audio = lm.head.weight.detach()[: vocabulary.advance]
        self.heads = [PackedMatrix(rows) for rows in audio.split(vocabulary.codebook_size)]


class PlainStream:
    """One plain stream: what ``LmStream`` is to the woven one. Its first input, a phoneme, is the last of the prompt."""

    compiled = False

    def __init__(self, model: PlainModel, prompt: Sequence[int]) -> None:
        self._model = model
        self.features = np.zeros((0, 1, model.lm.config.width), np.float32)
        self._cache = model.lm.cache()
        self._before, self._last = len(prompt) - 1, prompt[-1]
        for at in range(0, self._before, MAX_ROWS):
            model.lm.hidden(prompt[at : min(at + MAX_ROWS, self._before)], self._cache)

    def follow(self, kernel: Callable[..., int], inputs: Sequence[StreamInput], start: int, *rest: Any) -> int:
        """See ``ConditionedSource``; a drafter does not ask this of a model that is not ``compiled``."""
        raise NotImplementedError("passes of a plain model are not compiled")

    def keep(self, start: int, path: Sequence[int]) -> None:
        """See ``LogitSource``."""
        self._cache.keep(0, self._before + start, path)

    @torch.inference_mode()
    def forward(
        self,
        inputs: Sequence[StreamInput],
        start: int,
        parents: Sequence[int] | None = None,
        added: Floats | None = None,
    ) -> Logits:
        """See ``LogitSource``; takes nothing to add."""
        self._cache.rewind(0, self._before + start)
        ids = [self._last if item.token == NO_TOKEN else item.token for item in inputs]
        parts = [
            self._model.lm.hidden(ids[at : at + MAX_ROWS], self._cache, parents=parents)
            for at in range(0, len(ids), MAX_ROWS)
        ]
        hidden = torch.cat(parts).numpy()  # [R, width]
        self.features = hidden[:, None]
        size = self._model.heads[0].outputs
        logits = np.full((len(ids), size + 2), -np.inf, np.float32)
        due = np.array([item.due for item in inputs])
        for book in set(due):
            rows = np.flatnonzero(due == book)
            logits[rows, :size] = self._model.heads[book](hidden[rows])
        return logits


def ours(target: PlainModel, drafter: PlainModel | None, vocabulary: Vocabulary, gamma: int) -> Generate:
    """Our rounds, plain without a drafter."""

    def generate(prompt: Sequence[int], frames: int, sampling: SamplingOptions, seed: int) -> tuple[list[int], int]:
        script = Script(vocabulary, [frames + MAX_ROWS], [True])  # the drafts of the last round may go beyond
        sampler = Sampler(sampling, vocabulary, seed)
        stream = PlainStream(target, prompt)
        guess = NoDrafter() if drafter is None else ModelDrafter(PlainStream(drafter, prompt), script, sampler)
        state, tokens, passes = StreamState(), list[int](), 0
        while len(tokens) < frames * vocabulary.codebooks:
            done = speculative_round(stream, guess, script, sampler, state, gamma)
            state = done.state
            tokens += done.decisions
            passes += 1
        return tokens[: frames * vocabulary.codebooks], passes

    return generate


def theirs(model: Any, assistant: Any | None, vocabulary: Vocabulary, settings: dict[str, Any]) -> Generate:
    """transformers' ``generate``; ``settings`` replace those of the assistant's generation."""
    from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

    class DueOnly(LogitsProcessor):  # type: ignore[misc, unused-ignore]
        def __init__(self, prompt: int) -> None:
            self._prompt = prompt

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            first = (input_ids.shape[1] - self._prompt) % vocabulary.codebooks * vocabulary.codebook_size
            due = torch.full_like(scores, float("-inf"))
            due[:, first : first + vocabulary.codebook_size] = scores[:, first : first + vocabulary.codebook_size]
            return due

    def generate(prompt: Sequence[int], frames: int, sampling: SamplingOptions, seed: int) -> tuple[list[int], int]:
        greedy = sampling.temperature == 0
        chosen: dict[str, Any] = {} if greedy else {"temperature": sampling.temperature, "top_p": sampling.top_p}
        if not greedy:
            chosen["top_k"] = sampling.top_k
        config = GenerationConfig(
            max_new_tokens=frames * vocabulary.codebooks, do_sample=not greedy, pad_token_id=vocabulary.end, **chosen
        )
        if assistant is not None:
            assistant.generation_config = GenerationConfig(pad_token_id=vocabulary.end, **settings)
        passes = 0

        def count(*_: Any) -> None:
            nonlocal passes
            passes += 1

        hook = model.register_forward_hook(count)
        torch.manual_seed(seed)
        ids = torch.tensor([list(prompt)])
        processors = LogitsProcessorList([DueOnly(len(prompt))])
        try:
            made = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                generation_config=config,
                logits_processor=processors,
                assistant_model=assistant,
            )
        finally:
            hook.remove()
        return made[0, len(prompt) :].tolist(), passes

    return generate


@dataclass(slots=True)
class _Tally:
    seconds: list[float] = field(default_factory=list)  # a repeat each, over all sentences
    tokens: int = 0
    passes: int = 0


def run(
    synthesizer: Synthesizer,
    sentences: int,
    repeats: int,
    console: Console,
    frames: int = 60,
    sampling: SamplingOptions | None = None,
) -> dict[str, Any]:
    """Measure ``frames`` frames after each sentence, with the bundle's sampling unless given; ratios are over transformers' plain.

    Returns ``{"rows", "greedy_equal", ...}``; ``greedy_equal``: at temperature 0 all contenders say the same, as they must in float32;
    in bfloat16 the two sides round unlike.
    Raises SpeechError where the bundle has no drafter of its own model, and on a device that is not the CPU.
    """
    bundle = synthesizer.bundle
    manifest = bundle.manifest
    if DRAFTER not in bundle.drafters or bundle.device.type != "cpu":
        raise SpeechError("invalid_value", f"peers need a bundle with the drafter {DRAFTER!r}, on the CPU", "peers")
    vocabulary = Vocabulary(bundle.target.config.codebooks, bundle.target.config.codebook_size)
    entry = manifest.sampling
    sampling = sampling or SamplingOptions(entry.temperature, entry.top_k, entry.top_p)
    prompts = [_prompt(synthesizer, text) for text in held_out_sentences()[:sentences]]
    positions = max(map(len, prompts)) + frames * vocabulary.codebooks + 2 * MAX_ROWS
    gamma = max(1, manifest.default_gamma)
    with tempfile.TemporaryDirectory() as folder:
        contenders = _contenders(bundle.target, bundle.drafters[DRAFTER], Path(folder), positions, vocabulary, gamma)
    greedy = SamplingOptions(0.0)
    said = [contender(prompts[0], min(frames, GREEDY_FRAMES), greedy, 0)[0] for contender in contenders.values()]
    tallies = {name: _Tally() for name in contenders}
    for _ in range(repeats):
        spent = dict.fromkeys(contenders, 0.0)
        for index, prompt in enumerate(prompts):
            for name, contender in contenders.items():
                started = time.perf_counter()
                tokens, passes = contender(prompt, frames, sampling, index)
                spent[name] += time.perf_counter() - started
                tallies[name].tokens += len(tokens)
                tallies[name].passes += passes
        for name, seconds in spent.items():
            tallies[name].seconds.append(seconds)
    plain = next(iter(tallies.values()))
    rows = [_row(name, tally, plain) for name, tally in tallies.items()]
    _print(rows, console)
    return {
        "rows": rows,
        "greedy_equal": all(tokens == said[0] for tokens in said),
        "sentences": len(prompts),
        "frames": frames,
        "repeats": repeats,
        "temperature": sampling.temperature,
        "dtype": str(bundle.target.tokens.weight.dtype).removeprefix("torch."),
    }


def _contenders(
    target: SpeechLm, drafter: SpeechLm, folder: Path, positions: int, vocabulary: Vocabulary, gamma: int
) -> dict[str, Generate]:
    """All by name, transformers' plain first; every one reads its weights from the same files."""
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    for name, lm in (("target", target), ("drafter", drafter)):
        save_checkpoint(folder / name, joint_lm(lm, positions))
    dtype = target.tokens.weight.dtype
    their = [AutoModelForCausalLM.from_pretrained(folder / name, dtype=dtype).eval() for name in ("target", "drafter")]
    our = [PlainModel(load_checkpoint(folder / name, dtype), vocabulary) for name in ("target", "drafter")]
    fixed = {
        "num_assistant_tokens": gamma,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0.0,
    }
    return {
        "transformers plain": theirs(their[0], None, vocabulary, {}),
        "transformers assisted": theirs(their[0], their[1], vocabulary, {}),
        f"transformers assisted, {gamma} drafts": theirs(their[0], their[1], vocabulary, fixed),
        "ours plain": ours(our[0], None, vocabulary, 0),
        f"ours, {gamma} drafts": ours(our[0], our[1], vocabulary, gamma),
    }


def _prompt(synthesizer: Synthesizer, text: str) -> list[int]:
    """The sentence's phonemes as ids of the joint vocabulary."""
    first = synthesizer.bundle.target.config.end + 1
    passage = Passage(synthesizer.frontend, british=synthesizer.bundle.manifest.voices[0].british)
    passage.feed(text)
    passage.end()
    ids: list[int] = []
    while passage.has_more:
        ids += [first + phoneme.symbol for phoneme in passage.read()[0]]
    return ids


def _row(name: str, tally: _Tally, plain: _Tally) -> dict[str, Any]:
    ratios = [base / own for base, own in zip(plain.seconds, tally.seconds, strict=True)]
    return {
        "contender": name,
        "tokens_per_s": round(tally.tokens / sum(tally.seconds), 1),
        "tau": round(tally.tokens / tally.passes, 3),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_spread": [round(min(ratios), 3), round(max(ratios), 3)],
    }


def _print(rows: list[dict[str, Any]], console: Console) -> None:
    table = Table("contender", "tokens/s", "tau", "ratio", "spread")
    for row in rows:
        spread = "-".join(f"{ratio:.2f}" for ratio in row["ratio_spread"])
        table.add_row(
            row["contender"], f"{row['tokens_per_s']:.0f}", f"{row['tau']:.2f}", f"{row['ratio']:.2f}", spread
        )
    console.print(table)
