"""Turns in which the user tells a fact, changes it or asks for it.

`Facts` is what the user has told so far in a conversation; the turns here read and change it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from . import meaning
from .phrases import (
    Turn,
    expand,
    filled,
    kept_for_measuring,
    made_up_name,
    made_up_word,
    typed,
)
from .words import AROUND, ASK, ASK_MORE, CHANGE, CHINESE, FAVOURITES, NAMES, TELL, TELL_MORE

KINDS = ("name",) * 3 + ("number",) * 3 + tuple(FAVOURITES)
"""Kinds of facts, as often as they are told."""
ASTRAY = 0.12
"""Share of the questions that ask for a kind at random, often one never told."""
VALUE = "\0"
"""Stands for the value while a sentence is being worded, so that no slip falls into it."""


@dataclass
class Facts:
    """What the user has told: the latest value of each kind ("name", "number", "colour", …)."""

    told: dict[str, str] = field(default_factory=dict)
    older: dict[str, list[str]] = field(default_factory=dict)

    def learn(self, kind: str, value: str) -> None:
        """Take a new value; the former one becomes wrong."""
        if kind in self.told:
            self.older.setdefault(kind, []).append(self.told[kind])
        self.told[kind] = value


def new_value(rng: random.Random, kind: str, measuring: bool) -> str:
    """A value of the kind; names and numbers of measuring and of training never coincide."""
    while True:
        if kind == "name":
            value = rng.choice(NAMES) if rng.random() < 0.45 else made_up_word(rng).capitalize()
            if not measuring and rng.random() < 0.4:
                value = made_up_name(rng)
        elif kind == "number":
            value = str(rng.randint(0, 10 ** rng.choice((2, 3, 4, 4))))
        else:
            return rng.choice(FAVOURITES[kind])
        if kept_for_measuring(value) == measuring:
            return value


def worded(kind: str, patterns: dict[str, list[str]]) -> list[str]:
    """The patterns for a kind, with the kind's name filled in."""
    noun = "{colour|color}" if kind == "colour" else kind
    group = kind if kind in patterns else "favourite"
    return [pattern.replace("{kind}", noun) for pattern in patterns[group]]


def tell(rng: random.Random, facts: Facts, kind: str, measuring: bool = False) -> Turn:
    """The user tells or changes a fact; the answer repeats it."""
    value = new_value(rng, kind, measuring)
    changes = kind in facts.told and rng.random() < 0.7
    patterns = worded(kind, CHANGE if changes else TELL)
    if not measuring and not changes and rng.random() < 0.6:
        patterns = TELL_MORE.get(kind, patterns)
    told = expand(rng, filled(rng, rng.choice(patterns)).replace("{value}", VALUE))
    if not measuring and rng.random() < 0.4:
        told = around(rng, told)
    question = typed(rng, told, slips=0.03)
    if question == question.lower() and rng.random() < 0.4:
        value = value.lower()
    if VALUE not in question:
        question = expand(rng, f"my {kind} is {VALUE}.")
    facts.learn(kind, value)
    answer = {
        "name": f"Nice to meet you, {value}!",
        "number": f"I will remember {value}.",
    }.get(kind, f"Noted: your favourite {kind} is {value}.")
    thought = f"The user tells me the {kind}: {value}. I remember it."
    return Turn(question.replace(VALUE, value), answer, thought)


def around(rng: random.Random, told: str) -> str:
    """What is told inside a longer message."""
    counts = rng.choice(((1, 0), (0, 1), (1, 1), (2, 0), (2, 1), (1, 2)))
    before, after = (
        [expand(rng, filled(rng, pattern)) for pattern in rng.sample(AROUND[side], count)]
        for side, count in zip(("before", "after"), counts, strict=True)
    )
    end = "" if not after or told[-1:] in ".!?" else "."
    said = [*before, told + end, *after]
    return " ".join(part[:1].upper() + part[1:] for part in said)


def tell_two(rng: random.Random, facts: Facts, measuring: bool = False) -> Turn:
    """A name and a number in one message."""
    name, number = new_value(rng, "name", measuring), new_value(rng, "number", measuring)
    facts.learn("name", name)
    facts.learn("number", number)
    lead = "{my number is|the number is|remember the number|my lucky number is}"
    question = expand(rng, f"{{my name is|i am|call me}} {name} and {lead} {number}{{.|}}")
    return Turn(
        question[:1].upper() + question[1:],
        f"Nice to meet you, {name}! I will remember {number}.",
        f"The user tells me the name {name} and the number {number}.",
    )


def recall(
    rng: random.Random,
    facts: Facts,
    kind: str | None = None,
    astray: float = ASTRAY,
    measuring: bool = False,
) -> Turn:
    """The user asks for a fact, told or not; with the probability `astray` for any kind."""
    kind = kind or rng.choice([*facts.told] * 3 or ["name", "number", *FAVOURITES])
    if rng.random() < astray:
        kind = rng.choice(("name", "number", *FAVOURITES))
    patterns = worded(kind, ASK)
    if not measuring and rng.random() < 0.4:
        patterns = ASK_MORE.get(kind, patterns)
    question = typed(rng, expand(rng, rng.choice(patterns)), slips=0.05)
    if kind not in facts.told:
        whose = {"name": "your name", "number": "a number"}.get(kind, f"your favourite {kind}")
        return Turn(
            question,
            f"You have not told me {whose} yet.",
            f"The user did not tell me {whose}.",
            check=lambda said: "not" in meaning.words(said),
        )
    value = facts.told[kind]
    wrong = {old.lower() for old in facts.older.get(kind, [])} - {value.lower()}
    answer = {"name": f"Your name is {value}.", "number": f"The number is {value}."}.get(
        kind, f"Your favourite {kind} is {value}."
    )

    def right(said: str) -> bool:
        named = {word.strip(".,!?") for word in said.lower().split()}
        return value.lower() in named and not named & wrong

    return Turn(question, answer, f"The user told me: {value}.", check=right)


def tell_chinese(rng: random.Random, facts: Facts) -> Turn:
    """The user tells a name in Chinese, sometimes inside a longer message."""
    value = rng.choice(CHINESE["family"]) + "".join(
        rng.sample(CHINESE["given"], rng.choice((1, 1, 2)))
    )
    if rng.random() < 0.3:
        value = new_value(rng, "name", measuring=False)
    told = rng.choice(CHINESE["tell"])
    if rng.random() < 0.4:
        told = rng.choice(CHINESE["before"]) + told
    if rng.random() < 0.3:
        told = told.removesuffix("{。|}") + "，" + rng.choice(CHINESE["after"])
    facts.learn("name", value)
    question = expand(rng, told.replace("{value}", VALUE)).replace(VALUE, value)
    return Turn(question, f"很高兴认识你，{value}！", f"用户告诉我名字：{value}。")


def recall_chinese(rng: random.Random, facts: Facts) -> Turn:
    """The user asks in Chinese for the name, told or not."""
    question = expand(rng, rng.choice(CHINESE["ask"]))
    if "name" not in facts.told:
        return Turn(question, "你还没有告诉我你的名字。", "用户没有告诉我名字。")
    value = facts.told["name"]
    return Turn(question, f"你的名字是{value}。", f"用户告诉过我：{value}。")
