"""Pictures for a tower with one square built in: on black, undistorted, as its scripts do it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from q35chat.vision.patches import patchify
from q35chat.vision.resize import fitted_size
from tests.vision.files import noise
from tests.vision.rules import CONFIG, RULES

SQUARE = replace(RULES, square=128)


@pytest.mark.parametrize(("width", "height"), [(64, 64), (333, 217), (96, 251), (128, 3)])
def test_patches_are_those_of_the_picture_on_a_black_square(width: int, height: int) -> None:
    image = noise(width, height)
    side = max(width, height)
    canvas = Image.new("RGB", (side, side))
    canvas.paste(image, ((side - width) // 2, (side - height) // 2))
    size = {"shortest_edge": 128**2, "longest_edge": 128**2}
    wanted = Qwen2VLImageProcessorPil(**{**CONFIG, "size": size})(
        images=[canvas], return_tensors="np"
    )

    rows, grid_h, grid_w = patchify(image, SQUARE)
    assert [[1, grid_h, grid_w]] == wanted["image_grid_thw"].tolist() == [[1, 8, 8]]
    np.testing.assert_array_equal(rows, wanted["pixel_values"])


@pytest.mark.parametrize("cap", [1, 16, 1024])
def test_every_picture_has_the_size_of_the_square(cap: int) -> None:
    assert fitted_size(4000, 3000, SQUARE, cap) == (128, 128)


def test_the_square_of_a_very_long_picture_is_not_made_in_full() -> None:
    rows, _, _ = patchify(Image.new("RGB", (60_000, 400), "white"), SQUARE)

    lit = (rows > -0.9).any(axis=1).sum()
    assert 0 < lit <= 16  # a line through the middle two rows of patches
