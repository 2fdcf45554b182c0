"""One speech stream from text to chunks, a round at a time. The caller decides when; nothing here waits.

Ties passage, script, rounds and renderer together and keeps the clock of the words. Single owner: no method is thread-safe.
Knows no socket, no thread and no other stream.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from models.bundle import Bundle
from models.lm_stream import LmStream
from models.speech_lm import OFFSETS
from tts_spec.audio.renderer import Renderer
from tts_spec.engine.lengths import most_frames
from tts_spec.engine.passage import Passage, SpokenPhoneme
from tts_spec.engine.plan import AUTO, SpeechPlan
from tts_spec.engine.policy import Choice, Done, Policy
from tts_spec.engine.scheduler import RAMP
from tts_spec.engine.together import SharedNetworks, ignore
from tts_spec.engine.word_clock import WordClock
from tts_spec.speculate.drafters import ModelDrafter, NoDrafter
from tts_spec.speculate.early_exit import EarlyExitDrafter
from tts_spec.speculate.lookahead import LookaheadDrafter
from tts_spec.speculate.medusa import MedusaDrafter
from tts_spec.speculate.ratio import ratio_round
from tts_spec.speculate.round import Round, StreamState, speculative_round
from tts_spec.speculate.sampling import Sampler
from tts_spec.speculate.script import Script, Vocabulary
from tts_spec.text.frontend import Frontend
from tts_spec.text.symbols import START, STOP
from tts_spec.types import Chunk, Pcm, SpeechStats, SpeechWarning

NEXT = OFFSETS.index(1)  # in a phoneme's window
PHONEMES_AHEAD = 48  # the next clause is phonemised when fewer are left
FORGET_EVERY = 256  # phonemes

StreamDrafter = NoDrafter | ModelDrafter | EarlyExitDrafter | MedusaDrafter | LookaheadDrafter
Frame = tuple[int, ...]  # K codes
Silence = float  # seconds


class SpeechStream:
    """See the module. ``text``, ``flush`` and ``end`` bring text; ``step`` does one round's work while ``ready``."""

    def __init__(
        self,
        bundle: Bundle,
        frontend: Frontend,
        plan: SpeechPlan,
        networks: SharedNetworks | None = None,
        policy: Policy | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``networks``: those shared with other streams; by default the stream has its own caches. ``policy``: decides, where ``plan`` says
        ``auto``, how each round of this one stream drafts; without one whoever runs the stream sets ``drafter`` and ``gamma``.
        """
        self._policy = policy if plan.drafter == AUTO else None
        networks = networks or SharedNetworks(bundle, 1, self._policy.observe_pass if self._policy else ignore)
        self.plan = plan
        # How the next round drafts.
        self.drafter = bundle.manifest.default_drafter if plan.drafter == AUTO else plan.drafter
        self.gamma = plan.gamma
        self.most_frames = RAMP[-1]  # of the next chunk, if RAMP has more; the engine lowers it where there is no time
        self.holding = False  # set by the engine: a chunk that is due waits for those of others
        self._clock = clock
        self._opened = clock()
        config = bundle.target.config
        self._vocabulary = Vocabulary(config.codebooks, config.codebook_size)
        self._caps = bundle.manifest.caps
        self._passage = Passage(frontend, british=plan.british)
        self._script = Script.empty(self._vocabulary)
        self._phonemes: list[SpokenPhoneme] = []
        self._bundle = bundle
        self._networks = networks
        self._target = networks.target.open(plan.voice_weights, plan.speed)
        self._sampler = Sampler(plan.sampling, self._vocabulary, plan.seed)
        self._drafters: dict[str, StreamDrafter] = {}  # those used so far
        self._models: dict[str, LmStream] = {}  # of those that have one: at most a slot of each drafter's cache
        self._renderer = Renderer(networks.codec, bundle.silence)
        self._sample_rate = bundle.codec.sample_rate
        self._frame_s = bundle.codec.frame_samples / bundle.codec.sample_rate
        self._state = StreamState()
        self._last_round: Round | None = None
        self._partial: list[int] = []  # codes of the frame being built
        self._undecoded: deque[Frame | Silence] = deque()
        self._words = WordClock(self._frame_s)
        self._warnings: list[SpeechWarning] = []
        self._accepted_flags: list[bool] = []
        self._flush_marks: deque[int] = deque()  # phoneme count at each flush not yet passed
        self._flush_items: deque[int] = deque()  # of those passed and not yet reported: what must be decoded first
        self._decoded = 0  # frames and silences taken from ``_undecoded``
        self._chunks = 0
        self._tokens = self._passes = self._drafted = self._accepted = self._samples = 0
        self._tried_by_book = [0] * config.codebooks
        self._accepted_by_book = [0] * config.codebooks
        self._passes_by_drafter: dict[str, int] = {}
        self._capped = self._capped_taken = 0
        self._work_s = self._rounds_s = 0.0
        self._first_audio_s: float | None = None
        self._hash = hashlib.sha256()
        self.finished = False

    def text(self, piece: str) -> None:
        """More text to speak."""
        self._passage.feed(piece)

    def flush(self) -> None:
        """Speak all text so far without waiting for more."""
        self._passage.flush()

    def end(self) -> None:
        """No more text will come."""
        self._passage.end()

    @property
    def holds(self) -> bool:
        """Whether there is text that waits for the rest of its clause."""
        return self._passage.holds

    def hurry(self, whole: bool) -> None:
        """Speak that text as far as it goes: whole words, or all of it."""
        self._passage.hurry(whole)

    def take_capped(self) -> int:
        """Phonemes that have reached their cap since this was last asked."""
        new, self._capped_taken = self._capped - self._capped_taken, self._capped
        return new

    def take_round(self) -> Round | None:
        """The round of the last step, once; None if it did none."""
        done, self._last_round = self._last_round, None
        return done

    def park(self) -> None:
        """Give the slots back for as long as there is nothing to do; ``unpark`` comes before the next ``step``."""
        for model in (self._target, *self._models.values()):
            model.park()

    def unpark(self) -> None:
        """Take slots again and go on as if nothing had been. Raises ValueError when there are none."""
        for model in (self._target, *self._models.values()):
            model.unpark()

    def close(self) -> None:
        """Give the slots back; the stream is over. Idempotent."""
        self.finished = True
        for model in (self._target, *self._models.values()):
            model.close()

    @property
    def ready(self) -> bool:
        """Whether ``step`` has something to do now; if not, it waits for text or the stream is finished."""
        return not self.finished and (self._passage.has_more or not self._waits or self._passage.ended)

    @property
    def read_chars(self) -> int:
        """Characters of text that have left for the voice."""
        return self._passage.read_chars

    @property
    def _waits(self) -> bool:
        return self._script.waits(self._state.script)

    def step(self) -> Chunk | None:
        """At most one round, and a chunk if one is due. The last chunk carries stats and may have no audio."""
        started = self._clock()
        while self._passage.has_more and len(self._script) - self._state.script.phoneme < PHONEMES_AHEAD:
            self._read()
        if not self._waits:
            self._commit(self._round())
        dry = self._waits and not self._passage.has_more
        last = dry and self._passage.ended
        while self._flush_marks and self._flush_marks[0] <= self._state.script.phoneme:
            self._flush_marks.popleft()
            self._flush_items.append(self._decoded + len(self._undecoded))
        pcm = self._render(everything=dry)
        self._work_s += self._clock() - started
        flushed = 0
        while self._flush_items and self._flush_items[0] <= self._decoded:
            self._flush_items.popleft()
            flushed += 1
        if not (len(pcm) or flushed or last or self._warnings):
            return None
        return self._chunk(pcm, flushed, last)

    def _round(self) -> Round:
        started = self._clock()
        if self._policy is not None:
            self.drafter, self.gamma = self._policy.choose(1, self.plan.mode, self.plan.gamma)
        drafter = self._ready_drafter(self.drafter)
        do = ratio_round if self.plan.mode == "ratio" else speculative_round
        done = do(self._target, drafter, self._script, self._sampler, self._state, self.gamma)
        seconds = self._clock() - started
        if self._policy is not None:
            self._policy.observe_round([Done(Choice(self.drafter, self.gamma), self.plan.mode, done)], seconds)
        self._rounds_s += self._clock() - started
        return done

    def _read(self) -> None:
        """Take the next clause into the script and the models."""
        flushes = self._passage.flushes
        phonemes, warnings = self._passage.read()
        for phoneme in phonemes:
            cap = round(self._caps[phoneme.symbol] / min(self.plan.speed, 1.0))
            if phoneme.symbol not in (START, STOP):
                cap = min(cap, most_frames(phoneme.symbol, phoneme.window[NEXT], self.plan.speed))
            self._script.append(cap, end=phoneme.ends_sentence)
        self._phonemes += phonemes
        self._tell(self._target)
        self._warnings += warnings
        if self._passage.flushes > flushes and not (self._passage.ended and not self._passage.has_more):
            self._flush_marks.append(len(self._script))  # the flush that ``end`` implies is not the caller's

    def _tell(self, model: LmStream) -> None:
        """Let ``model`` know the phonemes it does not know yet."""
        known = model.dropped + len(model.entry)
        if known < len(self._phonemes):
            model.extend([phoneme.window for phoneme in self._phonemes[known:]])

    def _ready_drafter(self, name: str) -> StreamDrafter:
        """The drafter ``name``, made where it is used first, and told what it missed."""
        if name not in self._drafters:
            self._drafters[name] = self._make_drafter(name)
        if name in self._models:
            self._tell(self._models[name])
        return self._drafters[name]

    def _make_drafter(self, name: str) -> StreamDrafter:
        if name == "none":
            return NoDrafter()
        if name == "lookahead":
            return LookaheadDrafter(self._script)
        if name == "early-exit":
            assert self._networks.early_exit is not None
            return EarlyExitDrafter(self._networks.early_exit.open(self._target), self._script, self._sampler)
        if name == "medusa":
            assert self._bundle.medusa is not None
            return MedusaDrafter(self._bundle.medusa, self._script, self._sampler)
        model = self._networks.drafters[name].open(self.plan.voice_weights, self.plan.speed)
        model.forget(self._target.dropped)
        self._models[name] = model
        told = model.told if model.batch.lm.condition is not None else None
        return ModelDrafter(model, self._script, self._sampler, tell=told)

    def _commit(self, done: Round) -> None:
        """Take a round's decisions into frames, words and counters."""
        state = self._state.script
        for index, decision in enumerate(done.decisions):
            self._tried_by_book[state.due] += index < done.longest
            self._accepted_by_book[state.due] += index < done.accepted
            if decision < self._vocabulary.advance:
                if state.due == 0 and state.frames == 0:
                    self._words.enter(self._phonemes[state.phoneme].word)
                self._partial.append(decision % self._vocabulary.codebook_size)
                if len(self._partial) == self._vocabulary.codebooks:
                    self._undecoded.append(tuple(self._partial))
                    self._partial.clear()
                    self._words.frame()
            else:
                self._capped += state.frames >= self._script.caps[state.phoneme]
                pause = self._phonemes[state.phoneme].pause_s
                if pause > 0:
                    self._words.silence(pause)
                    self._undecoded.append(pause)
            self._accepted_flags.append(index < done.accepted)
            state = self._script.after(state, decision)
        if self._script.waits(state):
            self._words.enter(None)  # whatever follows is another word
        self._hash.update(np.array(done.decisions, "<i4").tobytes())
        self._last_round = done
        self._tokens += len(done.decisions)
        self._passes += 1
        self._passes_by_drafter[self.drafter] = self._passes_by_drafter.get(self.drafter, 0) + 1
        self._drafted += done.drafted
        self._accepted += done.accepted
        self._state = done.state
        oldest = done.state.inputs[0].phoneme  # a drafter that fell behind may ask for it yet
        if oldest // FORGET_EVERY > self._target.dropped // FORGET_EVERY:
            for model in (self._target, *self._models.values()):
                model.forget(oldest // FORGET_EVERY * FORGET_EVERY)

    @property
    def due(self) -> bool:
        """Whether a chunk is complete, or will be with the next frame."""
        return len(self._undecoded) + 1 >= self._wanted

    @property
    def _wanted(self) -> int:
        return min(RAMP[min(self._chunks, len(RAMP) - 1)], self.most_frames)

    def _render(self, *, everything: bool) -> Pcm:
        """Audio of all frames there are, once there are enough for a chunk or with ``everything``."""
        room = len(self._undecoded)
        if not room or ((self.holding or room < self._wanted) and not everything):
            return np.zeros(0, np.float32)
        self._decoded += room
        parts: list[Pcm] = []
        while room:
            frames: list[Frame] = []
            silence: Silence | None = None
            while room and silence is None:
                item = self._undecoded.popleft()
                room -= 1
                if isinstance(item, float):
                    silence = item
                else:
                    frames.append(item)
            if frames:
                parts.append(self._renderer.frames(frames, before_silence=silence is not None))
            if silence is not None:
                parts.append(self._renderer.silence(silence))
        return np.concatenate(parts)

    def _chunk(self, pcm: Pcm, flushed: int, last: bool) -> Chunk:
        if len(pcm):
            self._chunks += 1
            self._samples += len(pcm)
            if self._first_audio_s is None:
                self._first_audio_s = self._clock() - self._opened
        chunk = Chunk(
            pcm=pcm,
            sample_rate=self._sample_rate,
            words=self._words.take(),
            onsets=self._words.take_onsets(),
            warnings=tuple(self._warnings),
            accepted=tuple(self._accepted_flags),
            flushed=flushed,
            stats=self.stats() if last else None,
        )
        self._warnings.clear()
        self._accepted_flags.clear()
        self.finished = last
        return chunk

    def stats(self) -> SpeechStats:
        """Counters so far."""
        return SpeechStats(
            audio_s=self._samples / self._sample_rate,
            wall_s=self._work_s,
            rounds_s=self._rounds_s,
            first_audio_ms=None if self._first_audio_s is None else self._first_audio_s * 1000,
            tokens=self._tokens,
            target_passes=self._passes,
            drafted=self._drafted,
            accepted=self._accepted,
            tried_by_codebook=tuple(self._tried_by_book),
            accepted_by_codebook=tuple(self._accepted_by_book),
            drafter=self.plan.drafter,
            gamma=self.plan.gamma,
            seed=self.plan.seed,
            token_hash=self._hash.hexdigest(),
            passes_by_drafter=dict(self._passes_by_drafter),
            capped=self._capped,
        )
