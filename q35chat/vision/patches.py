"""From RGB pixels to the rows that the vision graph takes, and the `Picture` that holds them.

Computes what transformers' Pillow processor of Qwen2-VL computes, to the bit, without importing
it: that module imports torch wherever torch is installed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from PIL import Image

from q35chat.vision.loading import decode
from q35chat.vision.resize import fitted_size
from q35chat.vision.rules import DEFAULT_MAX_IMAGE_TOKENS, PictureRules

FloatArray = npt.NDArray[np.float32]

_LARGEST_SQUARE = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """One picture ready for the vision graph.

    `patches` [P, 3 * temporal_patch * patch * patch] float32 in merge-block order, with
    P = grid_h * grid_w; `tokens` = P / merge**2; `width` and `height` are those of the upright
    original; `sha256` is of its file's bytes.
    """

    sha256: str
    width: int
    height: int
    patches: FloatArray = field(repr=False)
    grid_h: int
    grid_w: int
    tokens: int


def prepare(
    data: bytes, name: str, rules: PictureRules, cap: int = DEFAULT_MAX_IMAGE_TOKENS
) -> Picture:
    """Decode, resize and cut up the picture file `data`; `name` is for messages only.

    Raises PictureError if `data` is no usable picture.
    """
    image = decode(data, name)
    patches, grid_h, grid_w = patchify(image, rules, cap, name=name)
    return Picture(
        sha256=hashlib.sha256(data).hexdigest(),
        width=image.width,
        height=image.height,
        patches=patches,
        grid_h=grid_h,
        grid_w=grid_w,
        tokens=grid_h * grid_w // rules.merge_size**2,
    )


def patchify(
    image: Image.Image,
    rules: PictureRules,
    cap: int = DEFAULT_MAX_IMAGE_TOKENS,
    *,
    name: str = "the picture",
) -> tuple[FloatArray, int, int]:
    """Patches [P, V] float32 of an RGB image and its grid's height and width in patches."""
    size = fitted_size(image.width, image.height, rules, cap, name=name)
    if rules.square is not None:
        image = _in_square(image, rules.resample)
    resized = image.resize(size, resample=rules.resample)
    # float64 for the scaling, float32 after it: as the processor does, for equal bits
    scaled = (np.asarray(resized).astype(np.float64) * rules.rescale_factor).astype(np.float32)
    mean, std = np.array(rules.mean, np.float32), np.array(rules.std, np.float32)
    pixels: FloatArray = (scaled - mean) / std
    patch, merge = rules.patch_size, rules.merge_size
    grid_h, grid_w = size[1] // patch, size[0] // patch
    blocks = pixels.reshape(grid_h // merge, merge, patch, grid_w // merge, merge, patch, 3)
    ordered = blocks.transpose(0, 3, 1, 4, 6, 2, 5)[:, :, :, :, :, None]
    frames = (*ordered.shape[:5], rules.temporal_patch_size, patch, patch)
    rows = np.broadcast_to(ordered, frames).reshape(grid_h * grid_w, rules.patch_values)
    return rows, grid_h, grid_w


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
