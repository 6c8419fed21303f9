"""Pictures of simple shapes on a plain ground, and their way into patches.

Owns the demo's picture world (forms, colours, places) and the preprocessing that its
`preprocessor_config.json` states. Knows nothing of questions, tokens or the model.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

PATCH_SIZE = 16
MERGE_SIZE = 2
TEMPORAL_PATCH_SIZE = 2
MIN_PIXELS = 128 * 128
MAX_PIXELS = 192 * 192
FLAT = 1.9
RGB = tuple[int, int, int]

FORMS = ("circle", "square", "triangle", "star")
COLOURS: dict[str, tuple[RGB, ...]] = {
    "red": ((220, 40, 40), (255, 0, 0), (190, 20, 40)),
    "green": ((40, 160, 60), (0, 128, 0), (0, 230, 30)),
    "blue": ((40, 80, 220), (0, 0, 255), (30, 120, 230)),
    "yellow": ((245, 215, 40), (255, 255, 0), (240, 225, 60)),
    "orange": ((245, 140, 30), (255, 150, 0), (235, 120, 20)),
    "purple": ((140, 60, 180), (128, 0, 128), (150, 40, 210)),
}
GROUNDS: dict[str, tuple[RGB, ...]] = {
    "white": ((255, 255, 255), (250, 250, 250), (255, 255, 255)),
    "grey": ((200, 200, 200), (180, 180, 185), (212, 212, 210)),
    "black": ((0, 0, 0), (20, 20, 20), (30, 30, 36)),
    "pastel": ((250, 235, 215), (215, 230, 245), (240, 220, 235), (225, 240, 220)),
}
ROWS = ("top", "", "bottom")
COLUMNS = ("left", "", "right")


@dataclass(frozen=True)
class Shape:
    """One shape; `row` and `column` (0..2) say in which cell of a 3 by 3 grid its centre lies."""

    colour: str
    form: str
    row: int
    column: int

    @property
    def place(self) -> str:
        """Where it is, in words: "top left", "left", "middle"."""
        return f"{ROWS[self.row]} {COLUMNS[self.column]}".strip() or "middle"


Spot = tuple[float, float, float]
"""Where a shape lies: its centre in shares of width and height, its radius in pixels."""


@dataclass(frozen=True)
class Scene:
    """What a picture shows: shapes in reading order, no two alike; `spots` where they do not lie in
    the middles of cells of their own."""

    ground: str
    shapes: tuple[Shape, ...]
    width: int
    height: int
    spots: tuple[Spot, ...] = ()


def draw_size(rng: random.Random) -> tuple[int, int]:
    """Width and height in pixels: mostly small and near square, sometimes wide, tall or large."""
    kind = rng.random()
    limit = math.log(2.4) if kind < 0.85 else math.log(10)
    aspect = math.exp(rng.uniform(-limit, limit) if kind < 0.97 else rng.choice((-1, 1)) * limit)
    long_side = rng.uniform(110, 300) if rng.random() < 0.94 else rng.uniform(300, 1000)
    short_side = max(48.0, long_side / max(aspect, 1 / aspect))
    long_side = short_side * max(aspect, 1 / aspect)
    sides = (round(long_side), round(short_side))
    return sides if aspect > 1 else (sides[1], sides[0])


def random_scene(rng: random.Random, count: int | None = None) -> Scene:
    """A scene with `count` shapes (0 to 3; drawn if None).

    A picture more than `FLAT` times as wide as high (or the reverse) uses its middle row
    (column) only, where shapes can be large enough to be seen.
    """
    width, height = draw_size(rng)
    cells = [(row, column) for row in range(3) for column in range(3)]
    if width > FLAT * height:
        cells = [cell for cell in cells if cell[0] == 1]
    elif height > FLAT * width:
        cells = [cell for cell in cells if cell[1] == 1]
    if count is None:
        count = rng.choices((0, 1, 2, 3), (3, 30, 36, 31))[0]
    places = sorted(rng.sample(cells, min(count, len(cells))))
    kinds = rng.sample([(colour, form) for colour in COLOURS for form in FORMS], len(places))
    shapes = tuple(Shape(*kind, *place) for kind, place in zip(kinds, places, strict=True))
    return Scene(rng.choice(tuple(GROUNDS)), shapes, width, height)


def outline(
    form: str, x: float, y: float, radius: float, turn: float, inner: float = 0.42
) -> list[tuple[float, float]]:
    """Corner points of a polygon form around (x, y); `turn` in radians, `inner` the share of the
    radius at which the inner corners of a star lie."""
    corners, start = {
        "square": (4, math.pi / 4),
        "triangle": (3, -math.pi / 2),
        "star": (10, -math.pi / 2),
    }[form]
    points = []
    for index in range(corners):
        reach = radius * inner if form == "star" and index % 2 else radius
        angle = start + turn + 2 * math.pi * index / corners
        points.append((x + reach * math.cos(angle), y + reach * math.sin(angle)))
    return points


def jittered(rng: random.Random, bases: tuple[RGB, ...], spread: int) -> RGB:
    """One of the base colours, each channel moved by at most `spread`."""
    red, green, blue = (
        min(255, max(0, value + rng.randint(-spread, spread))) for value in rng.choice(bases)
    )
    return red, green, blue


def draw(scene: Scene, rng: random.Random) -> Image.Image:
    """The scene as an RGB picture; sizes, exact spots, tints and soft edges come from `rng`."""
    scale = 2 if max(scene.width, scene.height) < 320 and rng.random() < 0.6 else 1
    width, height = scene.width * scale, scene.height * scale
    image = Image.new("RGB", (width, height), jittered(rng, GROUNDS[scene.ground], 6))
    pen = ImageDraw.Draw(image)
    flat = max(width, height) > FLAT * min(width, height)
    cell = 0.75 * min(width, height) if flat else min(width, height) / 3
    for shape in scene.shapes:
        x = width * ((shape.column + 0.5) / 3 + rng.uniform(-0.035, 0.035))
        y = height * ((shape.row + 0.5) / 3 + rng.uniform(-0.035, 0.035))
        diameter = cell * rng.uniform(0.7, 0.92)
        if len(scene.shapes) == 1:
            diameter = cell * rng.uniform(0.5, 1.2 if flat else 2.2)
        radius = min(diameter / 2, x - 1, y - 1, width - x - 1, height - y - 1)
        fill = jittered(rng, COLOURS[shape.colour], 14)
        if shape.form == "circle":
            pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill)
        else:
            pen.polygon(
                outline(shape.form, x, y, radius * 1.1, rng.uniform(-0.15, 0.15)), fill=fill
            )
    if scale > 1:
        image = image.resize((scene.width, scene.height), Image.Resampling.BOX)
    if rng.random() < 0.12:
        image = noisy(image, rng)
    image.info["scene"] = scene
    return image


def noisy(image: Image.Image, rng: random.Random, strongest: float = 5.0) -> Image.Image:
    """The picture with the noise of a camera or of JPEG, of a deviation of 1 to `strongest`."""
    dice = np.random.default_rng(rng.getrandbits(32))
    grain = dice.normal(0, rng.uniform(1, strongest), (image.height, image.width, 3))
    return Image.fromarray((np.asarray(image) + grain).clip(0, 255).astype(np.uint8))


def names_of_tokens(image: Image.Image) -> npt.NDArray[np.int64]:
    """What lies under each picture token, `[3, tokens]`: form, colour, place.

    0 where no shape has its middle, else 1 + the index in `FORMS`, in `COLOURS`, or of the
    cell in reading order; -1 throughout in a picture whose scene is not known.
    """
    width, height = target_size(*image.size)
    unit = PATCH_SIZE * MERGE_SIZE
    names = np.zeros((3, height // unit, width // unit), np.int64)
    scene = image.info.get("scene")
    if not isinstance(scene, Scene):
        return names.reshape(3, -1) - 1
    middles = (((it.column + 0.5) / 3, (it.row + 0.5) / 3, 0) for it in scene.shapes)
    for shape, (x, y, _) in zip(scene.shapes, scene.spots or middles, strict=True):
        row, column = int(y * names.shape[1]), int(x * names.shape[2])
        indices = (
            FORMS.index(shape.form),
            tuple(COLOURS).index(shape.colour),
            3 * shape.row + shape.column,
        )
        names[:, row, column] = [1 + index for index in indices]
    return names.reshape(3, -1)


def photo_like(rng: random.Random) -> Image.Image:
    """A picture outside the demo's world: smooth random blotches, as of a photo out of focus."""
    width, height = draw_size(rng)
    dice = np.random.default_rng(rng.getrandbits(32))
    coarse = dice.integers(0, 256, (rng.randint(4, 14), rng.randint(4, 14), 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize(
        (width, height), rng.choice((Image.Resampling.BICUBIC, Image.Resampling.NEAREST))
    )
    return noisy(image, rng)


def target_size(width: int, height: int) -> tuple[int, int]:
    """Width and height to resize to: multiples of 32, area within the limits where possible.

    The rule of the Qwen2-VL image processor, so that a runtime's own preprocessing agrees.
    """
    unit = PATCH_SIZE * MERGE_SIZE
    new_width, new_height = round(width / unit) * unit, round(height / unit) * unit
    if new_width * new_height > MAX_PIXELS:
        shrink = math.sqrt(width * height / MAX_PIXELS)
        return max(unit, int(width / shrink / unit) * unit), max(
            unit, int(height / shrink / unit) * unit
        )
    if new_width * new_height < MIN_PIXELS:
        grow = math.sqrt(MIN_PIXELS / (width * height))
        return math.ceil(width * grow / unit) * unit, math.ceil(height * grow / unit) * unit
    return new_width, new_height


def patches(image: Image.Image) -> tuple[npt.NDArray[np.float32], tuple[int, int]]:
    """Patches `[grid_h * grid_w, 3 * 2 * 16 * 16]`, values -1..1, and `(grid_h, grid_w)`.

    Patches come in the order of the merge blocks of 2 by 2.
    """
    width, height = target_size(*image.size)
    pixels = np.asarray(
        image.convert("RGB").resize((width, height), Image.Resampling.BICUBIC), dtype=np.float32
    )
    rows, columns = height // PATCH_SIZE, width // PATCH_SIZE
    blocks = (pixels.transpose(2, 0, 1) / 255 - 0.5) / 0.5
    blocks = blocks.reshape(
        3, rows // MERGE_SIZE, MERGE_SIZE, PATCH_SIZE, columns // MERGE_SIZE, MERGE_SIZE, PATCH_SIZE
    )
    flat = blocks.transpose(1, 4, 2, 5, 0, 3, 6)[:, :, :, :, :, None]
    flat = np.repeat(flat, TEMPORAL_PATCH_SIZE, axis=5)
    return flat.reshape(rows * columns, -1).astype(np.float32), (rows, columns)
