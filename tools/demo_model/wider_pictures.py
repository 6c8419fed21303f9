"""Pictures of the demo's shapes as others draw them: any ground, size, place, edge and wear.

Only for training: what is measured on held-out questions is drawn by `pictures`.
"""

from __future__ import annotations

import io
import math
import random
from typing import Final

from PIL import Image, ImageDraw, ImageFilter

from .pictures import COLOURS, FORMS, RGB, Scene, Shape, Spot, draw_size, jittered, noisy, outline

GROUNDS: Final = ("white", "white", "grey", "tint", "dark")
"""Kinds of grounds, as often as they are drawn."""
LARGEST: Final = (0.45, 0.45, 0.3, 0.22, 0.18)
"""Radius of the largest of so many shapes, in sides of a square with the picture's area."""
SMALLEST: Final = 0.065
NOISIEST: Final = 12.0
"""Largest deviation of the noise, of 255 levels."""


def random_scene(rng: random.Random, count: int | None = None) -> Scene:
    """A scene with `count` shapes (0 to 4; 0 to 3 if None) at any places, no two alike."""
    width, height = draw_size(rng)
    if count is None:
        count = rng.choices((0, 1, 2, 3), (3, 25, 36, 36))[0]
    kinds = rng.sample([(colour, form) for colour in COLOURS for form in FORMS], count)
    spots = anywhere(rng, width, height, count)
    spots.sort(key=lambda spot: (int(spot[1] * 3), int(spot[0] * 3), spot[0]))
    shapes = (
        Shape(*kind, row=int(y * 3), column=int(x * 3))
        for kind, (x, y, _) in zip(kinds, spots, strict=True)
    )
    return Scene("any", tuple(shapes), width, height, tuple(spots))


def anywhere(rng: random.Random, width: int, height: int, count: int) -> list[Spot]:
    """Spots of any size, wholly in the picture and apart from each other."""
    side = math.sqrt(width * height)
    largest = min(0.46 * min(width, height), side * LARGEST[count])
    spots: list[Spot] = []
    while len(spots) < count:
        radius = max(SMALLEST * side, largest * rng.random() ** 0.7)
        room = min(radius * 1.03, 0.5 * min(width, height))
        x = rng.uniform(room, width - room) / width
        y = rng.uniform(room, height - room) / height
        apart = all(
            math.dist((x * width, y * height), (spot[0] * width, spot[1] * height))
            > radius + spot[2] + 0.02 * side
            for spot in spots
        )
        if apart:
            spots.append((x, y, radius))
        elif rng.random() < 0.01:  # what lies there leaves no room
            spots.clear()
    return spots


def draw(scene: Scene, rng: random.Random) -> Image.Image:
    """The scene as an RGB picture; tints, ground, edges and wear come from `rng`."""
    scale = rng.choice((1, 2, 3)) if max(scene.width, scene.height) < 320 else 1
    image = Image.new("RGB", (scene.width * scale, scene.height * scale), ground(rng))
    pen = ImageDraw.Draw(image)
    for shape, spot in zip(scene.shapes, scene.spots, strict=True):
        x, y, radius = spot[0] * image.width, spot[1] * image.height, spot[2] * scale
        fill = tint(rng, COLOURS[shape.colour])
        if shape.form == "circle":
            pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill)
        else:
            reach, turn = radius * rng.uniform(1, 1.12), rng.uniform(-0.15, 0.15)
            pen.polygon(outline(shape.form, x, y, reach, turn, rng.uniform(0.36, 0.52)), fill=fill)
    if scale > 1:
        smooth = rng.choice((Image.Resampling.BOX, Image.Resampling.LANCZOS))
        image = image.resize((scene.width, scene.height), smooth)
    image = worn(image, rng)
    image.info["scene"] = scene
    return image


def tint(rng: random.Random, bases: tuple[RGB, ...]) -> RGB:
    """A colour between two of the base colours or beside them."""
    one, other, share = rng.choice(bases), rng.choice(bases), rng.random()
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(one, other, strict=True))
    return jittered(rng, ((red, green, blue),), 18)


def ground(rng: random.Random) -> RGB:
    """A colour to draw on: nearly white, grey, pale or dark."""
    kind = rng.choice(GROUNDS)
    if kind == "tint":
        return rng.randint(205, 255), rng.randint(205, 255), rng.randint(205, 255)
    low, high = {"white": (226, 255), "grey": (110, 230), "dark": (0, 90)}[kind]
    level = 255 if kind == "white" and rng.random() < 0.3 else rng.randint(low, high)
    return jittered(rng, ((level, level, level),), 5)


def worn(image: Image.Image, rng: random.Random) -> Image.Image:
    """The picture as files have it: half the time as drawn, else noisy, through JPEG or soft."""
    kind = rng.random()
    if kind < 0.2:
        return noisy(image, rng, NOISIEST)
    if kind < 0.45:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=rng.randint(30, 95))
        return Image.open(file).convert("RGB")
    if kind < 0.5:
        return image.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 1.2)))
    return image
