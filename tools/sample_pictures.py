"""Draws the sample pictures in `assets/pictures/`: `python -m tools.sample_pictures`.

Each is a picture of the demo model's world in a file format or with a property that
readers of pictures get wrong. The same files, byte for byte, on every run.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw

RGB = tuple[int, int, int]
WHITE: RGB = (255, 255, 255)
COLOURS: dict[str, RGB] = {
    "red": (220, 40, 40),
    "green": (40, 160, 60),
    "blue": (40, 80, 220),
    "yellow": (245, 215, 40),
    "orange": (245, 140, 30),
    "purple": (140, 60, 180),
}
ROTATED_90 = 6  # EXIF: the camera was turned, show the picture rotated clockwise
ORIENTATION = 0x0112
SMOOTH = 4


def canvas(size: tuple[int, int], ground: RGB | None = WHITE) -> Image.Image:
    """An empty picture, `SMOOTH` times too large; transparent without a ground."""
    large = (size[0] * SMOOTH, size[1] * SMOOTH)
    return Image.new("RGBA", large, (0, 0, 0, 0) if ground is None else (*ground, 255))


def put(image: Image.Image, colour: str, form: str, x: float, y: float, radius: float) -> None:
    """Draw a form at (x, y), in shares of the picture's size, with a radius in pixels."""
    pen = ImageDraw.Draw(image)
    centre_x, centre_y, reach = x * image.width, y * image.height, radius * SMOOTH
    if form == "circle":
        box = (centre_x - reach, centre_y - reach, centre_x + reach, centre_y + reach)
        pen.ellipse(box, fill=COLOURS[colour])
        return
    corners, start = {
        "square": (4, math.pi / 4),
        "triangle": (3, -math.pi / 2),
        "star": (10, -math.pi / 2),
    }[form]
    points = []
    for index in range(corners):
        distance = reach * (0.42 if form == "star" and index % 2 else 1.1)
        angle = start + 2 * math.pi * index / corners
        points.append(
            (centre_x + distance * math.cos(angle), centre_y + distance * math.sin(angle))
        )
    pen.polygon(points, fill=COLOURS[colour])


def finished(image: Image.Image, mode: str = "RGB") -> Image.Image:
    """The picture at its true size with soft edges."""
    return image.resize(
        (image.width // SMOOTH, image.height // SMOOTH), Image.Resampling.BOX
    ).convert(mode)


def draw_all(folder: Path) -> Sequence[Path]:
    """Write every sample picture and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)

    shapes = canvas((320, 240))
    put(shapes, "red", "circle", 0.17, 0.18, 30)
    put(shapes, "blue", "square", 0.5, 0.5, 32)
    put(shapes, "green", "triangle", 0.83, 0.82, 32)
    finished(shapes).save(folder / "shapes.png", optimize=True)

    circles = canvas((240, 320))
    put(circles, "yellow", "circle", 0.5, 0.18, 34)
    put(circles, "purple", "circle", 0.5, 0.82, 34)
    exif = Image.Exif()
    exif[ORIENTATION] = ROTATED_90
    finished(circles).transpose(Image.Transpose.ROTATE_90).save(
        folder / "two-circles.jpg", quality=90, exif=exif
    )

    triangle = canvas((256, 256), (200, 200, 200))
    put(triangle, "orange", "triangle", 0.5, 0.5, 52)
    finished(triangle).save(folder / "triangle.webp", lossless=True)

    alpha = canvas((256, 192), None)
    put(alpha, "blue", "star", 0.18, 0.5, 32)
    put(alpha, "red", "square", 0.82, 0.5, 30)
    finished(alpha, "RGBA").save(folder / "alpha.png", optimize=True)

    wide = canvas((960, 120))
    put(wide, "green", "star", 0.17, 0.5, 38)
    put(wide, "purple", "circle", 0.5, 0.5, 34)
    put(wide, "orange", "square", 0.83, 0.5, 36)
    finished(wide).save(folder / "wide.png", optimize=True)
    return sorted(folder.iterdir())


def main() -> None:
    """Draw the pictures into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("assets/pictures"))
    for path in draw_all(parser.parse_args().out):
        print(f"{path} ({path.stat().st_size} bytes)")


if __name__ == "__main__":
    main()
