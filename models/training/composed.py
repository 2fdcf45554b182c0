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
short: Yes. | No. | Okay. | Sure. | Maybe. | Hello! | Thanks. | Really? | Exactly. | Sorry. | Why? |
  Never. | Always. | Great! | Please. | Tomorrow. | Stop! | Of course. | Not yet. | I think so. | Good
  morning. | Good night. | See you later. | Right. | Wrong! | Perfect. | Wait. | Nothing. | Everything. |
  Who? | Where? | When? | How? | Left. | Fine. | Goodbye. | Hello. | Hi! | Absolutely. | Definitely not.
  | Hardly. | Twelve. | Blue. | Me too. | Go on. | After you. | Hold on. | So what? | No, thank you. |
  Yes, please. | Who is it? | What time is it? | Come in. | Let's go! | I don't know. | That's right. |
  Never mind. | Not at all. | Well done! | Excuse me.
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
    "My name is {name}, that is {spelled}.",
    "It is spelled {spelled}, with {letter} at the end.",
    "Press {letter} to {verb}, {letter} to {verb}, or {letter} to stop.",
    "Call {phone} and ask for {name}.",
    "You can reach {name} at {phone}, or at {mail}.",
    "Please write to {mail} before {day}.",
    "The form is at {site}, under {thing}s.",
    "{short} {short}",
    "{short} {name} has {past} the {thing}.",
    "No, no, no, {name}, not the {quality} {thing}!",
    "Very, very {quality}, and very, very {quality} too.",
    "Go, go, go! {name} is already at {place}.",
    "It was a {quality}, {quality}, {quality} {thing}.",
    "{name} said, {small} times, that the {thing} was {quality}.",
    "Dr. {name} and Mrs. {name} live at {number} St. Peter's Street.",
    "Sales rose {decimal}%, to {bigmoney}, in {year}.",
    "The bridge is {decimal} km long and {small} m wide.",
    "Take {small} mg at {clock} {half}, and {small} more at {clock} {half}.",
    "That is {small}/{small}, or about {decimal}%.",
    "Gate {letter}{small}, seat {small}{letter}, flight {letter}{letter} {number}.",
    "On {month} {date}, {year}, at {clock} {half}, {name} {past} {number} {thing}s for {money}.",
    "Of all the {thing}s that {name} and {name} had {past} since {month}, when the {quality} {thing} was {past} at {place}, "
    "only the {quality} one, which {name} had {past} for {money}, was ever {past} again.",
    "First {verb} the {thing}, then {verb} the {thing}, and when {name} comes back from {place} on {day}, {verb} both of them, "
    "unless they are too {quality} or too {quality} to {verb}, in which case you should call {name} at {place} before {clock} {half}.",
    "If {name} is right, and the {thing} was {past} in {place} in {year}, then why, after {small} years, does nobody "
    "know who {past} it, what it cost, or whether it was {quality} when it was {past}?",
)


@cache
def _words() -> dict[str, list[str]]:
    """``_WORDS`` as kind -> words."""
    kinds = re.findall(r"^(\w+): (.*(?:\n  .*)*)", _WORDS, flags=re.MULTILINE)
    return {kind: " ".join(words.split()).split(" | ") for kind, words in kinds}


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
    "letter": lambda r: r.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    "spelled": lambda r: "-".join(r.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(r.randint(3, 7))),
    "phone": lambda r: r.choice(
        (
            f"{r.randint(200, 999)}-{r.randint(1000, 9999)}",
            f"({r.randint(200, 999)}) {r.randint(200, 999)}-{r.randint(1000, 9999)}",
        )
    ),
    "mail": lambda r: (
        f"{r.choice(_words()['name']).lower()}@{r.choice(_words()['quality'])}-{r.choice(_words()['thing'])}.com"
    ),
    "site": lambda r: (
        f"{r.choice(_words()['thing'])}{r.choice(_words()['thing'])}.{r.choice(('com', 'org', 'net', 'co.uk'))}"
    ),
    "bigmoney": lambda r: f"${r.randint(1, 99)}.{r.randint(1, 9)} {r.choice(('million', 'billion'))}",
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
