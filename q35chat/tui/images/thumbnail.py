"""A small picture as cells of the screen. Decoding belongs in a worker thread."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

Pixel = tuple[int, int, int]
Cells = tuple[tuple[tuple[Pixel, Pixel], ...], ...]


def grid(picture: Image.Image, columns: int, rows: int, cell: tuple[int, int]) -> tuple[int, int]:
    """Columns and rows of cells of `cell` pixels (width, height) that keep the proportions.

    At most as many cells as half blocks would take in `columns` x `rows`.
    """
    shape = cell[1] / cell[0]
    scale = min(1.0, columns / picture.width, rows * shape / picture.height)
    wide, high = picture.width * scale, picture.height * scale / shape
    return min(columns, max(1, round(wide))), min(rows, max(1, round(high)))


@lru_cache(maxsize=64)
def half_blocks(data: bytes, columns: int, rows: int) -> Cells:
    """Rows of (upper, lower) RGB pixels that fit `columns` x `rows` cells, proportions kept.

    Two pixels a cell. Empty when the bytes are no picture that can be shown.
    """
    from q35chat.chat.prompt.pictures import thumbnail  # noqa: PLC0415 - the first paint must not wait

    small = thumbnail(data, columns, rows * 2)
    return _paired(small) if small is not None else ()


def coarse(picture: Image.Image, columns: int, rows: int) -> Cells:
    """Half blocks that fill `columns` x `rows` cells, from a picture already shrunk."""
    return _paired(picture.resize((columns, rows * 2)))


def _paired(picture: Image.Image) -> Cells:
    raw, row = picture.tobytes(), picture.width * 3
    lines = [
        [(raw[at], raw[at + 1], raw[at + 2]) for at in range(start, start + row, 3)]
        for start in range(0, len(raw), row)
    ]
    lower = lines[1::2] + lines[-1:]  # the last line of an odd number is its own lower half
    return tuple(tuple(zip(*both, strict=True)) for both in zip(lines[::2], lower, strict=False))
