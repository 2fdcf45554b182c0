"""Sentences made by rule: dialogue, questions, one-word answers, numbers, dates, prices, times.

They fill what books and documentation lack. Knows English templates; knows nothing of phonemes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import cache

_WORDS = """
name: Anna | Ben | Carla | David | Emma | Felix | Grace | Henry | Isla | Jack | Karen | Leo | Maria | Noah |
  Olivia | Peter | Quinn | Rosa | Sam | Tara | Umar | Vera | Will | Yusuf | Zoe
place: the station | the kitchen | the office | the airport | the library | the garden | the harbour | the
  market | the hospital | the school | London | Berlin | Chicago | Tokyo | Dublin | Nairobi | Toronto | Lisbon
  | Sydney | Mumbai
thing: key | map | ticket | letter | camera | umbrella | laptop | suitcase | jacket | phone | package | book |
  chair | lamp | bicycle | sandwich | guitar | passport | invoice | battery | printer | kettle | ladder |
  bottle | wallet
quality: blue | heavy | broken | expensive | tiny | quiet | useful | strange | wonderful | warm | empty | old
  | bright | narrow | cheap | smooth | clever | dusty
verb: find | bring | fix | sell | borrow | paint | send | open | carry | hide | order | clean | move | check |
  return
past: found | brought | fixed | sold | borrowed | painted | sent | opened | carried | hid | ordered | cleaned
  | moved | checked | returned
day: Monday | Tuesday | Wednesday | Thursday | Friday | Saturday | Sunday
month: January | February | March | April | May | June | July | August | September | October | November |
  December
unit: meters | kilometers | miles | kilograms | pounds | litres | minutes | seconds | hours | percent |
  degrees
short: Yes. | No. | Okay. | Sure. | Maybe. | Hello! | Thanks. | Really? | Exactly. | Sorry. | Why? | Never. |
  Always. | Great! | Please. | Tomorrow. | Stop! | Of course. | Not yet. | I think so. | Good morning. | Good
  night. | See you later. | No, thank you. | Yes, please. | Who is it? | What time is it? | Come in. | Let's
  go! | I don't know. | That's right. | Never mind. | Not at all. | Well done! | Excuse me.
"""

_TEMPLATES = (
    "{name}, where did you put the {thing}?",
    "Have you seen my {quality} {thing}?",
    "I left it at {place}, next to the {thing}.",
    "Could you {verb} the {thing} before {day}?",
    "Why would {name} take the {thing} to {place}?",
    "Okay, {name}, see you on {day}.",
    "Wait, what? {name} left your {thing} at {place}!",
    "Please {verb} the {quality} {thing} and call me back.",
    '"Is this your {thing}?" asked {name}.',
    "No, I haven't {past} the {thing} yet.",
    "{name} and {name} {past} a {quality} {thing} in {place}.",
    "If you can't {verb} it, ask {name}.",
    "Do you want the {quality} one or the {thing}?",
    "Who {past} my {thing}? Was it you, {name}?",
    "I'm sorry, but the {thing} is too {quality} for me.",
    "What a {quality} {thing}!",
    "Don't {verb} that {thing}!",
    "How long does it take from {place} to {place}?",
    "We need a {thing}, a {thing}, and something {quality}.",
    "Well, I suppose {name} will {verb} it; {name} never does.",
    "Are you going to {place}, or are you staying here?",
    "Which is more {quality}, the {thing} or the {thing}?",
    "Your appointment is on {day}, {month} {date}, at {clock} {half}.",
    "That comes to {money}.",
    "The {thing} costs {money}, and the {thing} is only {money}.",
    "There are {number} people in {place} right now.",
    "The temperature is {small} degrees in {place}.",
    "Turn left at {place}, then walk {number} {unit}.",
    "About {big} copies were sold in {year}.",
    "In {year}, {name} moved to {place}.",
    "The train to {place} leaves at {clock} from platform {small}.",
    "Your code is {digits}.",
    "It grew by {decimal} percent between {month} and {month}.",
    "Chapter {small} starts on page {number}.",
    "The {thing} weighs {decimal} kilograms.",
    "{name} was born on {month} {date}, {year}.",
    "Room {number} is on floor {small}.",
    "We waited {small} minutes, then another {number}.",
)

_NUMBERS: dict[str, Callable[[random.Random], str]] = {
    "date": lambda r: str(r.randint(1, 28)),
    "year": lambda r: str(r.randint(1800, 2040)),
    "small": lambda r: str(r.randint(2, 20)),
    "number": lambda r: str(r.randint(2, 10 ** r.randint(1, 4))),
    "big": lambda r: f"{r.randint(10_000, 9_999_999):,}",
    "decimal": lambda r: f"{r.randint(0, 99)}.{r.randint(1, 9)}",
    "money": lambda r: f"${r.randint(1, 2000)}.{r.randint(0, 99):02}",
    "clock": lambda r: f"{r.randint(1, 12)}:{r.choice((5, 10, 15, 20, 30, 40, 45, 50)):02}",
    "half": lambda r: r.choice(("am", "pm")),
    "digits": lambda r: " ".join(str(r.randint(0, 9)) for _ in range(r.randint(3, 7))),
}


def composed_sentences(count: int, seed: int) -> list[str]:
    """``count`` different sentences, the same for the same seed; one-word answers and short replies come first."""
    rng = random.Random(seed)
    made = dict.fromkeys(_words()["short"][:count])
    while len(made) < count:
        sentence = re.sub(r"\{(\w+)\}", lambda slot: _fill(slot[1], rng), rng.choice(_TEMPLATES))
        made[re.sub(r"\b([Aa]) (?=[aeio]|um)", r"\1n ", sentence)] = None
    return list(made)


def _fill(slot: str, rng: random.Random) -> str:
    return _NUMBERS[slot](rng) if slot in _NUMBERS else rng.choice(_words()[slot])


@cache
def _words() -> dict[str, list[str]]:
    """``_WORDS`` as kind -> words."""
    kinds = re.findall(r"^(\w+): (.*(?:\n  .*)*)", _WORDS, flags=re.MULTILINE)
    return {kind: " ".join(words.split()).split(" | ") for kind, words in kinds}
