"""What a request comes to with a given bundle: every open choice of SpeakOptions filled in and checked. Knows no text and no state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from models.bundle import Manifest
from tts_spec.engine.port import check_choices
from tts_spec.speculate.sampling import SamplingOptions
from tts_spec.types import SpeakOptions, SpeculationMode
from tts_spec.voice_mix import voice_weights

AUTO: Final = "auto"  # the drafter of who names none: what is fastest at the moment


def drafter_choices(manifest: Manifest) -> tuple[str, ...]:
    """What a request may name as its drafter."""
    return (*manifest.drafter_names, AUTO)


@dataclass(frozen=True, slots=True)
class SpeechPlan:
    """A request, complete."""

    voice_weights: tuple[float, ...]  # share of each row of the voice table; sums to 1
    british: bool  # where at least half of the voice is
    speed: float
    seed: int
    sampling: SamplingOptions
    drafter: str  # or AUTO: whoever runs the stream chooses before each round
    gamma: int  # drafts of a round; at most so many by AUTO
    mode: SpeculationMode


def plan(manifest: Manifest, options: SpeakOptions) -> SpeechPlan:
    """Fill ``options`` from the bundle's defaults.

    Raises SpeechError ``unknown_voice`` or ``invalid_value`` naming the field and what is allowed.
    """
    names = [voice.name for voice in manifest.voices]
    check_choices(options, names, drafter_choices(manifest))
    shares = voice_weights(options.voice or names[0], names)
    weights = tuple(shares.get(name, 0.0) for name in names)
    drafter = options.drafter if options.drafter is not None else AUTO
    gamma = options.gamma if options.gamma is not None else manifest.default_gamma
    defaults = manifest.sampling

    def chosen(value: float | None, default: float) -> float:
        return default if value is None else value

    return SpeechPlan(
        voice_weights=weights,
        british=sum(share for share, voice in zip(weights, manifest.voices, strict=True) if voice.british) >= 0.5,
        speed=options.speed,
        seed=options.seed,
        sampling=SamplingOptions(
            temperature=chosen(options.temperature, defaults.temperature),
            top_k=defaults.top_k if options.top_k is None else options.top_k,
            top_p=chosen(options.top_p, defaults.top_p),
            repetition_penalty=chosen(options.repetition_penalty, defaults.repetition_penalty),
        ),
        drafter=drafter,
        gamma=0 if drafter == "none" else gamma,
        mode=options.mode,
    )
