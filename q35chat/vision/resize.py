"""The size a picture gets: the processor's rule, under the user's cap on picture tokens.

Arithmetic on widths and heights only. The rule (both sides multiples of the token's side, area
between two limits, aspect ratio kept) is that of Qwen2-VL's image processor.
"""

from __future__ import annotations

import math

from q35chat.errors import PictureError
from q35chat.safe_text import safe_line
from q35chat.vision.rules import DEFAULT_MAX_IMAGE_TOKENS, PictureRules

MAX_ASPECT_RATIO = 200


def fitted_size(
    width: int,
    height: int,
    rules: PictureRules,
    cap: int = DEFAULT_MAX_IMAGE_TOKENS,
    *,
    name: str = "the picture",
) -> tuple[int, int]:
    """Width and height in pixels that a picture is resized to: at most `cap` tokens, but for rules
    of one square, which know only that one.

    `name` is for messages only. Raises PictureError if the aspect ratio is
    over 200:1, ValueError if `cap` is under 1.
    """
    if cap < 1:
        raise ValueError(f"a cap of {cap} picture tokens leaves no picture")
    if max(width, height) > MAX_ASPECT_RATIO * min(width, height):
        raise PictureError(
            f"{safe_line(name)} has {width} x {height} pixels, more than {MAX_ASPECT_RATIO} times "
            "as long as wide; crop it"
        )
    if rules.square is not None:
        return rules.square, rules.square
    factor = rules.factor
    max_pixels = min(rules.max_pixels, cap * factor**2)
    min_pixels = min(rules.min_pixels, max_pixels)
    columns, rows = round(width / factor), round(height / factor)
    if columns * rows * factor**2 > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        columns = max(1, math.floor(width / shrink / factor))
        rows = max(1, math.floor(height / shrink / factor))
    elif columns * rows * factor**2 < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        columns = math.ceil(width * grow / factor)
        rows = math.ceil(height * grow / factor)
    columns, rows = _held_under(cap, columns, rows)
    return columns * factor, rows * factor


def _held_under(cap: int, columns: int, rows: int) -> tuple[int, int]:
    """Cut the longer side where rounding left more than `cap` tokens.

    That happens only for a cap so small that a long thin picture has no room for its shape.
    """
    if columns * rows <= cap:
        return columns, rows
    short = min(columns, rows, math.isqrt(cap))
    long = cap // short
    return (long, short) if columns >= rows else (short, long)
