"""The voices of the bundle under every name clients know. Knows names and genders only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from service.messages import ErrorCode
from tts_spec.types import SpeechError, VoiceInfo
from tts_spec.voice_mix import mix_name, mixed

# The voices OpenAI's clients may name, and what their owners say they sound like.
OPENAI_VOICES = {
    "alloy": "female", "ash": "male", "ballad": "male", "cedar": "male", "coral": "female", "echo": "male", "fable": "male",
    "marin": "female", "nova": "female", "onyx": "male", "sage": "female", "shimmer": "female", "verse": "male",
}  # fmt: skip


class VoiceBook:
    """Finds a voice by its own name, by one of OpenAI's, or by a name the server's owner has given it."""

    def __init__(self, voices: Sequence[VoiceInfo], aliases: Mapping[str, str]) -> None:
        """``aliases``: other name -> voice. Raises ``SpeechError`` when one leads to no voice."""
        self.voices = tuple(voices)
        self._names = {voice.name.lower(): voice.name for voice in voices}
        self._others = _openai_names(voices)
        for alias, name in aliases.items():
            if name.lower() not in self._names:
                allowed = ", ".join(self._names.values())
                raise SpeechError(
                    "invalid_value", f"voice alias {alias} is {name!r}; allowed: {allowed}", "voice_aliases"
                )
            self._others[alias.lower()] = self._names[name.lower()]

    @property
    def default(self) -> str:
        """The bundle's first."""
        return self.voices[0].name

    def find(self, name: str | None) -> str:
        """The bundle's name of a voice, or of a mix of them (``tts_spec/voice_mix.py``); None: the default.

        Raises ``SpeechError`` ``unknown_voice``, or ``invalid_value`` for what is no mix.
        """
        if name is None:
            return self.default
        return self._known(name) or mix_name(mixed(name, self._find_one))

    def describe(self, name: str) -> VoiceInfo:
        """What is known of a voice or a mix, which has language and gender of its heaviest voice. Raises ``SpeechError`` as ``find``."""
        name = self.find(name)
        own = {voice.name: voice for voice in self.voices}
        if name in own:
            return own[name]
        weights = mixed(name, str)
        heaviest = max(weights, key=lambda each: weights[each])
        return replace(own[heaviest], name=name, description=f"Mix of {', '.join(weights)}")

    def _known(self, name: str) -> str | None:
        return self._names.get(name.lower()) or self._others.get(name.lower())

    def _find_one(self, name: str) -> str:
        found = self._known(name)
        if found is None:
            others = (other for other in self._others if other not in self._names)
            allowed = ", ".join([*self._names.values(), *others, "or a mix"])
            raise SpeechError(ErrorCode.UNKNOWN_VOICE, f"voice is {name[:80]!r}; allowed: {allowed}", "voice")
        return found


def _openai_names(voices: Sequence[VoiceInfo]) -> dict[str, str]:
    """Each of OpenAI's names for a voice of its gender, where there is one; the voices in turn."""
    turns = {
        gender: [v.name for v in voices if v.gender == gender] or [v.name for v in voices]
        for gender in ("female", "male")
    }
    taken = dict.fromkeys(turns, 0)
    found = {}
    for name, gender in OPENAI_VOICES.items():
        found[name] = turns[gender][taken[gender] % len(turns[gender])]
        taken[gender] += 1
    return found
