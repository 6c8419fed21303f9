"""Turns with neither picture nor memory: q35chat, things the demo does not know, counting."""

from __future__ import annotations

import random

from . import meaning
from .knowledge import CHINESE, ENGLISH, NO_PICTURE, UNKNOWN, UNKNOWN_CHINESE, Topic
from .phrases import Turn, expand, filled, typed

COUNT_LIMIT = 200
OPENINGS = (
    "please: ", "hey, ", "one question: ", "so, ", "and ", "ok, ", "now: ", "tell me, ",
    "excuse me, ", "well, ", "sorry, ",
)  # fmt: skip


def about(rng: random.Random, topic: Topic, typo: bool = True) -> Turn:
    """A question on a topic."""
    question = expand(rng, rng.choice(topic.patterns))
    if typo and rng.random() < 0.15:
        question = rng.choice(OPENINGS) + question
    return Turn(typed(rng, question) if typo else question, topic.answer, topic.thought)


def about_q35chat(rng: random.Random) -> Turn:
    """A question about q35chat or the demo, in English or (one in five) in Chinese."""
    if rng.random() < 0.2:
        return about(rng, rng.choice(CHINESE), typo=False)
    return about(rng, rng.choice(ENGLISH))


def unknown(rng: random.Random) -> Turn:
    """A question that the demo cannot answer."""
    if rng.random() < 0.1:
        return about(rng, UNKNOWN_CHINESE, typo=False)
    pattern = filled(rng, rng.choice(UNKNOWN.patterns))
    return Turn(typed(rng, expand(rng, pattern)), UNKNOWN.answer, UNKNOWN.thought)


def no_picture(rng: random.Random) -> Turn:
    """A question about a picture when none was shown."""
    question = typed(rng, expand(rng, rng.choice(NO_PICTURE.patterns)))
    return Turn(question, NO_PICTURE.answer, NO_PICTURE.thought)


def counting(rng: random.Random, longest: int = 30) -> Turn:
    """Count to N, from A to B, or down from N; the answer holds about `longest` numbers at most."""
    kind = rng.random()
    if kind < 0.04:
        asked = rng.randint(COUNT_LIMIT + 1, 20000)
        answer = f"That is too far for me: I count to {COUNT_LIMIT} at most."
        question = typed(rng, f"count to {asked}.")
        return Turn(question, answer, f"{asked} is more than {COUNT_LIMIT}.")
    if kind < 0.55:
        first, last = 1, rng.randint(1, min(longest, COUNT_LIMIT))
        verb = "{count|please count|can you count|count from 1|count for me|count up}"
        question = f"{verb} to {last}{{.||, please}}"
    elif kind < 0.93:
        first = rng.randint(0, COUNT_LIMIT - 10)
        last = rng.randint(first + 1, min(COUNT_LIMIT, first + longest))
        question = f"{{count|please count|can you count}} from {first} to {last}{{.|}}"
    else:
        first, last = rng.randint(3, min(20, longest)), 1
        question = f"count {{down|backwards}} from {first}{{.| to 1.}}"
    numbers = list(range(first, last + 1) if last >= first else range(first, last - 1, -1))
    return Turn(
        typed(rng, expand(rng, question), slips=0),
        " ".join(map(str, numbers)),
        f"I count from {first} to {last}.",
        check=lambda said: meaning.numbers_named(said) == numbers,
    )
