"""Questions that training never saw, each with a check of the answer's meaning. No torch here.

Fresh by construction: their seed strings begin with "held-out/", those of training with
"train/", and the names and numbers to remember come from the part of all values that
training leaves out (`phrases.kept_for_measuring`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PIL import Image

from . import memory_talk
from .dialogues import Conversation, Writer, messages, system_prompt
from .phrases import Turn
from .words import FAVOURITES

SEED = 2026


@dataclass(frozen=True)
class Question:
    """A conversation that ends in a question: feed `messages` and `pictures`, `check` the reply."""

    messages: list[dict[str, Any]]
    pictures: list[Image.Image]
    expected: str
    check: Callable[[str], bool]


def held_out_picture_questions(count: int, seed: int = SEED) -> list[Question]:
    """Questions about one picture or two, three in ten of them after earlier turns."""
    return [
        _picture_question(random.Random(f"held-out/picture/{seed}/{index}"))
        for index in range(count)
    ]


def held_out_memory_questions(count: int, seed: int = SEED) -> list[Question]:
    """Questions for a name, a number or a favourite told one to six turns earlier."""
    return [
        _memory_question(random.Random(f"held-out/memory/{seed}/{index}")) for index in range(count)
    ]


def held_out_conversations(count: int, seed: int = SEED) -> list[Question]:
    """Last questions of mixed conversations of 6 to 12 turns that end in a checkable answer."""
    found: list[Question] = []
    for index in range(count * 20):
        rng = random.Random(f"held-out/mixed/{seed}/{index}")
        writer = Writer(rng, measuring=True)
        turns = [writer.mixed() for _ in range(rng.randint(6, 12))]
        if turns[-1].check is not None and len(found) < count:
            found.append(_question(turns, system_prompt(rng)))
    return found


def _picture_question(rng: random.Random) -> Question:
    writer = Writer(rng, measuring=True)
    turns: list[Turn] = []
    if rng.random() < 0.3:
        turns.append(rng.choice((writer.memory, writer.other))())
    turns.append(writer.show(1 if rng.random() < 0.75 else 2))
    if rng.random() < 0.3:
        turns += [writer.about_shown() for _ in range(rng.randint(1, 2))]
    return _question(turns, system_prompt(rng))


def _memory_question(rng: random.Random) -> Question:
    writer = Writer(rng, measuring=True)
    kinds = rng.sample(("name", "number", rng.choice(tuple(FAVOURITES))), rng.choice((1, 2, 2, 3)))
    told = [*kinds, rng.choice(kinds)] if rng.random() < 0.2 else list(kinds)
    turns: list[Turn] = []
    for kind in told:
        turns += [writer.other() for _ in range(rng.choice((0, 0, 1)))]
        turns.append(memory_talk.tell(rng, writer.facts, kind, measuring=True))
    turns += [writer.other() for _ in range(rng.randint(0, 3))]
    asked = rng.choice([*writer.facts.told])
    turns.append(memory_talk.recall(rng, writer.facts, asked, measuring=True))
    return _question(turns, system_prompt(rng))


def _question(turns: list[Turn], system: str | None) -> Question:
    said, pictures = messages(Conversation(tuple(turns), system, thinking=False))
    check = turns[-1].check
    if check is None:
        raise ValueError(f"The question {turns[-1].question!r} has no check.")
    return Question(said, pictures, turns[-1].answer, check)
