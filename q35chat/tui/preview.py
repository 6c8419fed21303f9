"""A picture as coloured half blocks: two pixels a cell. Decoding belongs in a worker thread."""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO

Pixel = tuple[int, int, int]
Cells = tuple[tuple[tuple[Pixel, Pixel], ...], ...]


@lru_cache(maxsize=64)
def half_blocks(data: bytes, columns: int, rows: int) -> Cells:
    """Rows of (upper, lower) RGB pixels that fit `columns` x `rows` cells, proportions kept.

    Empty when the bytes are no picture that can be shown.
    """
    from PIL import Image, ImageOps  # noqa: PLC0415 - the first paint must not wait for it

    try:
        with Image.open(BytesIO(data)) as image:
            image.draft("RGB", (columns * 4, rows * 8))
            upright = ImageOps.exif_transpose(image).convert("RGB")
            upright.thumbnail((columns, rows * 2))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return ()
    width, height = upright.size
    pixels = upright.load()
    if pixels is None:
        return ()

    def at(x: int, y: int) -> Pixel:
        value = pixels[x, min(y, height - 1)]
        return value if isinstance(value, tuple) else (0, 0, 0)  # type: ignore[return-value]

    return tuple(tuple((at(x, y), at(x, y + 1)) for x in range(width)) for y in range(0, height, 2))
