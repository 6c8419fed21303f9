"""What the demo model makes of pictures and sentences that its training did not write.

`python -m tests.benchmarks.demo_model [MODEL] [--pictures 200]` exports the demo model as users do.
It counts the pictures of which it names exactly what is there, nothing missing and nothing added,
and the names that it remembers. Pictures and sentences were written from the words that the demo
knows, without a look at those of its training.
"""

from __future__ import annotations

import argparse
import io
import math
import random
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

import numpy as np
from PIL import Image, ImageDraw

from q35export.request import Precision
from tools.demo_model.evaluate import Asked, exported
from tools.demo_model.held_out import Question

COLOURS: Final = {
    "red": (220, 30, 35),
    "green": (30, 150, 60),
    "blue": (35, 70, 215),
    "yellow": (245, 215, 40),
    "orange": (245, 135, 25),
    "purple": (125, 45, 165),
}
GROUNDS: Final = (
    (255, 255, 255), (245, 245, 245), (238, 238, 238), (225, 225, 225), (205, 205, 205),
    (250, 246, 232), (235, 242, 250), (238, 250, 238), (252, 238, 244), (24, 24, 24), (60, 60, 66),
)  # fmt: skip
FORMS: Final = ("circle", "square", "triangle", "star")
_SMOOTH: Final = 4
"""Points drawn for each pixel, along one side."""
_NAME: Final = re.compile(rf"({'|'.join(COLOURS)}) ({'|'.join(FORMS)})")
_ASKED: Final = ("What is in this picture?", "What do you see?", "Describe the picture.")
PEOPLE: Final = ("Anna", "Peter", "Maria", "Tom", "Rosalind", "Benedict", "Yusuf", "Ingrid")
TOLD: Final = (
    "Please remember that my name is {}.",
    "For later: my name is {}, and I will ask you for it.",
    "You are talking to {} today.",
    "Good morning. I should introduce myself, I am {}, and I have some questions about pictures.",
    "I have never used a program like this before. My friends call me {}. Show me what you do.",
    "This is {} speaking.",
    "It is raining here and I am bored. By the way, my name is {}. Do you like the rain?",
    "Could you keep in mind that I am called {}?",
    "Everybody knows me as {}.",
    "My name, in case you need it, is {}.",
    "Nice to meet you. {} is my name.",
    "I want you to know that my name is {} and that I live near the sea.",
)
PEOPLE_CHINESE: Final = ("李雷", "韩梅梅", "晓东", "Ingrid")
TOLD_CHINESE: Final = (
    "您好，麻烦你记住，{}是我的名字。",
    "外面太吵了，我有点累。顺便说一下，我叫{}，住在上海。",
    "同学一般称呼我{}。",
    "我先自我介绍：我是{}，想问你几个关于图片的问题。",
)
RECALLED_CHINESE: Final = ("我叫什么名字？", "还记得我是谁吗？")
RECALLED: Final = ("What is my name?", "Do you remember my name?", "Tell me what I am called.")

Point = tuple[float, float]


@dataclass(frozen=True)
class Sample:
    """A picture and the names of what is on it."""

    picture: Image.Image
    names: tuple[str, ...]

    @property
    def question(self) -> Question:
        """A request to describe the picture."""
        text = _ASKED[len("".join(self.names)) % len(_ASKED)]
        parts = [{"type": "image"}, {"type": "text", "text": text}]
        return Question(
            [{"role": "user", "content": parts}],
            [self.picture],
            ", ".join(self.names),
            self.is_named,
        )

    def is_named(self, answer: str) -> bool:
        """Whether the answer names all shapes and no other."""
        return named(answer) == sorted(self.names)


def named(answer: str) -> list[str]:
    """Colour and form of every shape that the answer names, sorted."""
    return sorted(f"{colour} {form}" for colour, form in _NAME.findall(answer.lower()))


def samples(count: int, seed: int = 41) -> list[Sample]:
    """Pictures of one to three shapes; one shape as often as two and three together."""
    rng = random.Random(f"another program/{seed}")
    return [_sample(rng, rng.choice((1, 1, 2, 3))) for _ in range(count)]


def remembered(
    model: Asked,
    told: Sequence[str] = TOLD,
    people: Sequence[str] = PEOPLE,
    recalled: Sequence[str] = RECALLED,
) -> list[bool]:
    """Whether a name is known in the turn after it was told, for every wording with every name."""
    said = [(wording.format(person), person) for wording in told for person in people]
    return [
        _is_known(model, sentence, recalled[number % len(recalled)], person)
        for number, (sentence, person) in enumerate(said)
    ]


def _is_known(model: Asked, told: str, asked: str, person: str) -> bool:
    messages = [{"role": "user", "content": told}]
    for question in (asked, None):
        answer = model.answer(Question(messages, [], person, lambda said: person in said)).text
        if question:
            messages += [
                {"role": "assistant", "content": answer},
                {"role": "user", "content": question},
            ]
    return person in answer


def _sample(rng: random.Random, number: int) -> Sample:
    short = rng.choice((96, 128, 160, 200, 256, 320, 400, 480, 640))
    long = round(short * rng.choice((1, 1, 1.25, 4 / 3, 1.5, 1.6, 16 / 9, 2)))
    size = (long, short) if rng.random() < 0.6 else (short, long)
    ground = rng.choice(GROUNDS)
    kinds = rng.sample([(colour, form) for colour in COLOURS for form in FORMS], number)
    picture = Image.new("RGB", (size[0] * _SMOOTH, size[1] * _SMOOTH), ground)
    drawing = ImageDraw.Draw(picture)
    for (colour, form), (centre, radius) in zip(kinds, _places(rng, size, number), strict=True):
        tint = tuple(_nearby(rng, value) for value in COLOURS[colour])
        points = [(x * _SMOOTH, y * _SMOOTH) for x, y in _outline(rng, form, centre, radius)]
        drawing.polygon(points, fill=tint)
    smooth = Image.Resampling.LANCZOS if rng.random() < 0.7 else Image.Resampling.NEAREST
    picture = picture.resize(size, smooth)
    return Sample(_worn(rng, picture), tuple(f"{colour} {form}" for colour, form in kinds))


def _nearby(rng: random.Random, value: int) -> int:
    return min(255, max(0, value + rng.randint(-16, 16)))


def _places(
    rng: random.Random, size: tuple[int, int], number: int
) -> Sequence[tuple[Point, float]]:
    """Centres and radii of `number` circles that lie in the picture and apart."""
    width, height = size
    short = min(size)
    while True:
        found: list[tuple[Point, float]] = []
        for _ in range(number):
            radius = short * rng.uniform(0.11, {1: 0.42, 2: 0.26, 3: 0.2}[number])
            room = radius * 1.05
            x, y = rng.uniform(room, width - room), rng.uniform(room, height - room)
            found.append(((x, y), radius))
        gaps = (
            math.dist(one, other) - (first + second)
            for index, (one, first) in enumerate(found)
            for other, second in found[:index]
        )
        if all(gap > 0.06 * short for gap in gaps):
            return found


def _outline(rng: random.Random, form: str, centre: Point, radius: float) -> list[Point]:
    """The corners of a shape within a circle, as people draw them."""
    if form == "circle":
        return _on_circle(centre, [radius] * 120, 0.0)
    if form == "square":
        return _on_circle(centre, [radius] * 4, math.pi / 4)
    if form == "triangle":
        return _on_circle(centre, [radius] * 3, 0.0)
    inner = radius * rng.uniform(0.38, 0.5)
    return _on_circle(centre, [radius, inner] * 5, 0.0)


def _on_circle(centre: Point, radii: Sequence[float], turned: float) -> list[Point]:
    """Points around `centre` at equal angles, the first one above it."""
    step = 2 * math.pi / len(radii)
    return [
        (
            centre[0] + radius * math.sin(turned + step * index),
            centre[1] - radius * math.cos(turned + step * index),
        )
        for index, radius in enumerate(radii)
    ]


def _worn(rng: random.Random, picture: Image.Image) -> Image.Image:
    """The picture as files have it: as drawn, through JPEG, or with the noise of a camera."""
    way = rng.randrange(3)
    if way == 1:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=rng.randint(40, 92))
        return Image.open(file).convert("RGB")
    if way == 2:
        noise = np.random.default_rng(rng.getrandbits(32)).normal(
            0, rng.uniform(2, 9), (picture.height, picture.width, 3)
        )
        values = np.asarray(picture, np.float64) + noise
        return Image.fromarray(values.round().clip(0, 255).astype(np.uint8))
    return picture


def main() -> None:
    """Print how many pictures are named exactly, and what the others were taken for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="?", default=Path("assets/demo-model"))
    parser.add_argument("--pictures", type=int, default=200)
    parser.add_argument("--seed", type=int, default=41)
    parser.add_argument("--precision", choices=get_args(Precision), default="int4")
    parser.add_argument("--show", action="store_true", help="print what was named wrongly")
    asked = parser.parse_args()
    tally: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        model = exported(asked.model, asked.precision, Path(folder))
        for sample in samples(asked.pictures, asked.seed):
            said = model.answer(sample.question).text
            lacking = Counter(sample.names) - Counter(named(said))
            added = Counter(named(said)) - Counter(sample.names)
            tally[f"{len(sample.names)} shown"] += 1
            tally[f"{len(sample.names)} right"] += not lacking and not added
            tally["missing"] += bool(lacking)
            tally["added"] += bool(added)
            if asked.show and (lacking or added):
                print(f"{sample.picture.size}  {', '.join(sample.names)}  ->  {said}")
        names = remembered(model)
        chinese = remembered(model, TOLD_CHINESE, PEOPLE_CHINESE, RECALLED_CHINESE)
    right = sum(tally[f"{number} right"] for number in (1, 2, 3))
    print(f"{asked.precision}: {right} of {asked.pictures} pictures named exactly")
    for number in (1, 2, 3):
        print(f"  with {number}: {tally[f'{number} right']} of {tally[f'{number} shown']}")
    print(f"  something missing in {tally['missing']}, something added in {tally['added']}")
    print(f"{sum(names)} of {len(names)} names remembered")
    print(f"{sum(chinese)} of {len(chinese)} told in Chinese")


if __name__ == "__main__":
    main()
