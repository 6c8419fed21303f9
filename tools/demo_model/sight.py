"""Scenes in words: the phrases that questions and answers about pictures share."""

from __future__ import annotations

import random
import tomllib
from dataclasses import dataclass
from pathlib import Path

from . import meaning
from .phrases import article, expand, listed
from .pictures import COLUMNS, ROWS, Scene, Shape

PLACES = tuple(f"{row} {column}".strip() or "middle" for row in ROWS for column in COLUMNS)
WORDINGS: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("wordings.toml").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class View:
    """A scene and the words that point to its picture: "the picture", "the second picture"."""

    scene: Scene
    which: str = "the picture"

    @property
    def alone(self) -> bool:
        """Whether there is no other picture to confuse it with."""
        return self.which == "the picture"

    @property
    def suffix(self) -> str:
        """Added to a question that must say which of two pictures it means."""
        return "" if self.alone else f" in {self.which}"

    @property
    def of_it(self) -> str:
        """As `suffix`, after a place."""
        return "" if self.alone else f" of {self.which}"

    @property
    def thought(self) -> str:
        """The brief look at the picture that precedes an answer when thinking is on."""
        seen = [f"{name(shape)}, {shape.place}" for shape in self.scene.shapes]
        return f"I look at {self.which}: {'; '.join(seen) or 'no shapes'}."


def ask(rng: random.Random, *kinds: str, **fills: str) -> str:
    """A question of one of the kinds in `wordings.toml`; `of_it="…"` fills `<of it>`."""
    patterns = [pattern for kind in kinds for pattern in WORDINGS[kind]]
    pattern = rng.choice(patterns) if len(patterns) > 1 else patterns[0]
    for key, value in fills.items():
        pattern = pattern.replace(f"<{key.replace('_', ' ')}>", value)
    return expand(rng, pattern)


def at(place: str) -> str:
    """The place with its preposition: at the top, on the left, in the middle."""
    preposition = {"left": "on", "right": "on", "middle": "in"}.get(place, "at")
    return f"{preposition} the {place}"


def name(shape: Shape) -> str:
    """Colour and form: red circle."""
    return f"{shape.colour} {shape.form}"


def found(shapes: list[Shape] | tuple[Shape, ...]) -> str:
    """The shapes with articles and places: a red circle at the top and an orange star in the …."""
    return listed([f"{article(name(shape))} {at(shape.place)}" for shape in shapes])


def triples(scene: Scene) -> set[meaning.Named]:
    """What a full description must name."""
    return {(shape.colour, shape.form, shape.place) for shape in scene.shapes}
