"""From RGB pixels to the rows that the vision graph takes, by way of the size that the model reads.

Computes what transformers' Pillow processor of Qwen2-VL computes, to the bit, without importing
it: that module imports torch wherever torch is installed. The rule of the size (both sides
multiples of the token's side, area between two limits, aspect ratio kept) is that processor's too,
under the user's cap on picture tokens.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from PIL import Image

from q35chat.errors import PictureError
from q35chat.text import safe_line
from q35chat.vision.rules import DEFAULT_MAX_IMAGE_TOKENS, PictureRules

FloatArray = npt.NDArray[np.float32]

MAX_ASPECT_RATIO = 200
_LARGEST_SQUARE = 4096


def fit(
    image: Image.Image,
    rules: PictureRules,
    cap: int = DEFAULT_MAX_IMAGE_TOKENS,
    *,
    name: str = "the picture",
) -> Image.Image:
    """The RGB image in the size that the model reads, at most `cap` tokens; `name` is for messages
    only. Raises PictureError for one that is much too long."""
    size = fitted_size(image.width, image.height, rules, cap, name=name)
    if rules.square is not None:
        image = _in_square(image, rules.resample)
    return image.resize(size, resample=rules.resample)


def patches(fitted: Image.Image, rules: PictureRules) -> tuple[FloatArray, int, int]:
    """The rows that the vision graph takes of a picture that `fit` made, in merge-block order:
    [P, 3 * temporal_patch * patch * patch] float32, and the grid's height and width in patches, P
    together."""
    # float64 for the scaling, float32 after it: as the processor does, for equal bits
    scaled = (np.asarray(fitted).astype(np.float64) * rules.rescale_factor).astype(np.float32)
    mean, std = np.array(rules.mean, np.float32), np.array(rules.std, np.float32)
    pixels: FloatArray = (scaled - mean) / std
    patch, merge = rules.patch_size, rules.merge_size
    grid_h, grid_w = fitted.height // patch, fitted.width // patch
    blocks = pixels.reshape(grid_h // merge, merge, patch, grid_w // merge, merge, patch, 3)
    ordered = blocks.transpose(0, 3, 1, 4, 6, 2, 5)[:, :, :, :, :, None]
    frames = (*ordered.shape[:5], rules.temporal_patch_size, patch, patch)
    rows = np.broadcast_to(ordered, frames).reshape(grid_h * grid_w, rules.patch_values)
    return rows, grid_h, grid_w


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


def _in_square(image: Image.Image, resample: int) -> Image.Image:
    """The picture in the middle of a black square as wide as its longer side.

    A longer side than 4096 pixels is shrunk first: a thin picture's square would be huge.
    """
    longest = max(image.size)
    if longest > _LARGEST_SQUARE:
        shrink = _LARGEST_SQUARE / longest
        width, height = (max(1, round(side * shrink)) for side in image.size)
        image, longest = image.resize((width, height), resample=resample), _LARGEST_SQUARE
    square = Image.new("RGB", (longest, longest))
    square.paste(image, ((longest - image.width) // 2, (longest - image.height) // 2))
    return square
