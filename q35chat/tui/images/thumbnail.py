"""A picture made small enough for the screen. Decoding belongs in a worker thread."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

Pixel = tuple[int, int, int]
Cells = tuple[tuple[tuple[Pixel, Pixel], ...], ...]


@dataclass(frozen=True, slots=True)
class Pixels:
    """`height` rows of `width` RGB pixels, three bytes each."""

    width: int
    height: int
    rgb: bytes

    def at(self, x: int, y: int) -> Pixel:
        """The pixel in column `x` of row `y`."""
        start = (y * self.width + x) * 3
        return self.rgb[start], self.rgb[start + 1], self.rgb[start + 2]


def thumbnail(data: bytes, width: int, height: int) -> Pixels | None:
    """The picture upright, in at most `width` x `height` pixels, proportions kept.

    None when the bytes are no picture that can be shown. Never made larger.
    """
    from q35chat.chat.prompt.pictures import thumbnail  # noqa: PLC0415 - the first paint must not wait

    small = thumbnail(data, width, height)
    return Pixels(*small.size, small.tobytes()) if small is not None else None


def grid(pixels: Pixels, columns: int, rows: int, cell: tuple[int, int]) -> tuple[int, int]:
    """Columns and rows of cells of `cell` pixels (width, height) that keep the proportions.

    At most as many cells as half blocks would take in `columns` x `rows`.
    """
    shape = cell[1] / cell[0]
    scale = min(1.0, columns / pixels.width, rows * shape / pixels.height)
    wide, high = pixels.width * scale, pixels.height * scale / shape
    return min(columns, max(1, round(wide))), min(rows, max(1, round(high)))


@lru_cache(maxsize=64)
def half_blocks(data: bytes, columns: int, rows: int) -> Cells:
    """Rows of (upper, lower) RGB pixels that fit `columns` x `rows` cells, proportions kept.

    Two pixels a cell. Empty when the bytes are no picture that can be shown.
    """
    pixels = thumbnail(data, columns, rows * 2)
    return _paired(pixels) if pixels is not None else ()


def coarse(pixels: Pixels, columns: int, rows: int) -> Cells:
    """Half blocks that fill `columns` x `rows` cells, from a picture already shrunk."""
    from PIL import Image  # noqa: PLC0415 - the first paint must not wait for it

    image = Image.frombytes("RGB", (pixels.width, pixels.height), pixels.rgb)
    return _paired(Pixels(columns, rows * 2, image.resize((columns, rows * 2)).tobytes()))


def _paired(pixels: Pixels) -> Cells:
    last = pixels.height - 1
    return tuple(
        tuple((pixels.at(x, y), pixels.at(x, min(y + 1, last))) for x in range(pixels.width))
        for y in range(0, pixels.height, 2)
    )
