"""Whole conversations: which kinds of turns follow each other, with which pictures.

A conversation is a pure function of its seed string, so training ("train/…") and
measuring ("held-out/…") never share one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image

from . import memory_talk, pictures, small_talk, wider_pictures
from .chinese_pictures import ask_chinese
from .one_picture import CANNOT_SEE, ask_one
from .phrases import Turn, expand, made_up_word, typed
from .pictures import Scene, photo_like
from .sight import View
from .two_pictures import ask_two
from .words import FAVOURITES, SYSTEM_PROMPTS

WIDER_SHARE = 0.45
"""Of the messages with pictures in training, so many show pictures as others draw them."""
CHINESE_SHARE = 0.18
"""Of the turns in training that tell something or ask for it, so many are in Chinese."""
PAIRED = (1, 1, 1, 2, 2, 2, 3)
"""Shapes in each of two pictures."""
PHOTO_QUESTION = (
    "{what do you see|what is this|describe the picture|what is in the picture|"
    "how many shapes are there|describe this image|what is in this photo|what's this}?"
)


@dataclass(frozen=True)
class Conversation:
    """A conversation whose last turn is the newest; `thinking` is the setting for that turn."""

    turns: tuple[Turn, ...]
    system: str | None
    thinking: bool


@dataclass(frozen=True)
class Mix:
    """How many conversations are mainly of a kind, each share on top of those before it.

    The rest mixes all kinds.
    """

    pictures: float
    photos: float
    memory: float
    chat: float
    counting: float
    pairs: float
    """Share of two pictures in a message among the conversations about pictures."""
    told: Sequence[str] = memory_talk.KINDS
    """The kinds of what is told, as often as they stand here."""
    astray: float = memory_talk.ASTRAY
    """Share of the questions for something told that ask for any kind, told or not."""


FOR_WORDS = Mix(0.5, 0.52, 0.74, 0.88, 0.925, pairs=0.26)
"""For the vocabulary, which pictures do not need."""
LESSONS = Mix(0.55, 0.56, 0.83, 0.88, 0.95, pairs=0.45)
"""Most of what is learnt late: to tell two pictures apart, and to repeat what was told."""
MEMORY = Mix(
    0.36,
    0.365,
    0.8,
    0.84,
    0.94,
    pairs=0.45,
    told=(*memory_talk.KINDS, *FAVOURITES, *FAVOURITES),
    astray=0.2,
)
"""After the lessons: what is told, favourites above all, and where a count stops."""
SEEING = Mix(0.6, 0.605, 0.8, 0.84, 0.92, pairs=0.4, astray=0.2)
"""To see well again, when what is told is remembered."""
FINISH = Mix(0.5, 0.505, 0.66, 0.7, 0.76, pairs=0.35, astray=0.2)
"""For the end: above all long conversations of everything."""
WIDER = Mix(0.68, 0.69, 0.86, 0.9, 0.94, pairs=0.25, astray=0.15)
"""To go on from weights that know all of it: pictures of any kind, and facts told in any words."""


class Writer:
    """Writes one conversation turn by turn, keeping what was shown and told so far."""

    def __init__(
        self,
        rng: random.Random,
        measuring: bool = False,
        told: Sequence[str] = memory_talk.KINDS,
        astray: float = memory_talk.ASTRAY,
    ) -> None:
        self.rng = rng
        self.told, self.astray = told, astray
        self.measuring = measuring
        self.facts = memory_talk.Facts()
        self.scenes: tuple[Scene, ...] = ()
        self.seen_any = False

    def show(self, count: int, shapes: int | None = None) -> Turn:
        """A message with one or two new pictures (of `shapes` shapes) and a question about them."""
        wider = not self.measuring and self.rng.random() < WIDER_SHARE
        source = wider_pictures if wider else pictures
        self.scenes = tuple(
            source.random_scene(self.rng, self.rng.choice(PAIRED) if count == 2 else shapes)
            for _ in range(count)
        )
        self.seen_any = True
        return replace(
            self.about_shown(),
            pictures=tuple(source.draw(scene, self.rng) for scene in self.scenes),
        )

    def about_shown(self) -> Turn:
        """A question about the newest pictures."""
        if len(self.scenes) == 2:
            turn = ask_two(self.rng, *self.scenes)
        elif not self.measuring and self.rng.random() < 0.07:
            return ask_chinese(self.rng, self.scenes[0])
        else:
            turn = ask_one(self.rng, View(self.scenes[0]))
        return replace(turn, question=typed(self.rng, turn.question, slips=0.04))

    def photo(self) -> Turn:
        """A picture from outside the demo's world."""
        self.scenes, self.seen_any = (), True
        question = typed(
            self.rng,
            expand(
                self.rng,
                PHOTO_QUESTION,
            ),
        )
        return Turn(
            question,
            CANNOT_SEE,
            "I look at the picture: no simple shapes.",
            (photo_like(self.rng),),
        )

    def memory(self) -> Turn:
        """Tell something, or ask for something told."""
        if not self.measuring and self.rng.random() < CHINESE_SHARE:
            speak = memory_talk.tell_chinese
            if "name" in self.facts.told and self.rng.random() < 0.7:
                speak = memory_talk.recall_chinese
            return speak(self.rng, self.facts)
        if (self.facts.told and self.rng.random() < 0.62) or self.rng.random() < 0.06:
            return memory_talk.recall(
                self.rng, self.facts, astray=self.astray, measuring=self.measuring
            )
        if self.rng.random() < 0.12:
            return memory_talk.tell_two(self.rng, self.facts, self.measuring)
        kind = self.rng.choice(self.told)
        return memory_talk.tell(self.rng, self.facts, kind, self.measuring)

    def other(self) -> Turn:
        """Neither picture nor memory."""
        dice = self.rng.random()
        if dice < 0.5:
            return small_talk.about_q35chat(self.rng)
        if dice < 0.84:
            return small_talk.unknown(self.rng)
        if dice < 0.94 or self.seen_any:
            return small_talk.counting(self.rng, 15)
        return small_talk.no_picture(self.rng)

    def follow_up(self) -> Turn:
        """After pictures: mostly about them."""
        return self.about_shown() if self.rng.random() < 0.85 else self.mixed()

    def remember_or_chat(self) -> Turn:
        """Inside a conversation about what to remember."""
        return self.memory() if self.rng.random() < 0.6 else self.other()

    def mixed(self) -> Turn:
        """Any kind of turn."""
        dice = self.rng.random()
        if dice < 0.1:
            return self.show(1 if self.rng.random() < 0.75 else 2)
        if dice < 0.35 and self.scenes:
            return self.about_shown()
        return self.memory() if dice < 0.7 else self.other()


def training_conversation(seed: str, grown: float = 1.0, mix: Mix = LESSONS) -> Conversation:
    """The conversation of a seed string; `grown` (0..1) leads from first lessons to long ones."""
    rng = random.Random(seed)
    writer = Writer(rng, told=mix.told, astray=mix.astray)
    if rng.random() < 0.8 * (1 - grown**2):
        return Conversation(tuple(first_lesson(rng, writer)), None, thinking=False)
    ease = 0.4 + 0.6 * grown
    kind = rng.random()
    turns: list[Turn] = []
    if kind < mix.pictures:
        turns.append(writer.show(1 if rng.random() < 1 - mix.pairs else 2))
        turns += [writer.follow_up() for _ in range(rng.choice((0, 1, 2, 3)))]
    elif kind < mix.photos:
        turns.append(writer.photo())
    elif kind < mix.memory:
        turns.append(writer.memory())
        more = rng.randint(1, max(1, round(6 * ease)))
        turns += [writer.remember_or_chat() for _ in range(more)]
    elif kind < mix.chat:
        turns = [writer.other() for _ in range(rng.choice((1, 2, 3, 4)))]
    elif kind < mix.counting:
        longest = rng.choice((10, 30, 60, 100, 200)) if rng.random() < ease else 20
        turns.append(small_talk.counting(rng, longest))
    else:
        turns = [writer.mixed() for _ in range(rng.randint(3, max(4, round(12 * ease))))]
    return Conversation(tuple(turns), system_prompt(rng), rng.random() < 0.2)


def first_lesson(rng: random.Random, writer: Writer) -> list[Turn]:
    """A short conversation from which looking and copying are learnt fast."""
    if rng.random() < 0.2:
        return [writer.memory(), writer.memory()]
    turns = [writer.show(1, rng.choice((1, 1, 1, 2)))]
    return turns + [writer.about_shown() for _ in range(rng.choice((1, 2)))]


def system_prompt(rng: random.Random) -> str | None:
    """A system prompt, or none (two times in three)."""
    if rng.random() < 0.66:
        return None
    pattern = rng.choice(SYSTEM_PROMPTS)
    while "{word}" in pattern:
        pattern = pattern.replace("{word}", made_up_word(rng), 1)
    return expand(rng, pattern)


def content(turn: Turn) -> str | list[dict[str, str]]:
    """The user message's content: plain text, or a list of picture parts and one text part."""
    if not turn.pictures:
        return turn.question
    return [{"type": "image"} for _ in turn.pictures] + [{"type": "text", "text": turn.question}]


def messages(conversation: Conversation) -> tuple[list[dict[str, Any]], list[Image.Image]]:
    """Chat messages up to and including the last question, and all pictures in order."""
    said: list[dict[str, Any]] = []
    if conversation.system is not None:
        said.append({"role": "system", "content": conversation.system})
    for turn in conversation.turns:
        said.append({"role": "user", "content": content(turn)})
        said.append({"role": "assistant", "content": turn.answer})
    return said[:-1], [picture for turn in conversation.turns for picture in turn.pictures]
