from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
    Qwen2VLImageProcessorPil,
    smart_resize,
)

from q35chat.errors import PictureError
from q35chat.vision.patches import fitted_size
from q35chat.vision.rules import DEFAULT_MAX_IMAGE_TOKENS, PictureRules
from tests.support.patchify import patchify
from tests.vision.files import noise
from tests.vision.rules import CONFIG, RULES, token_count

NO_CAP = RULES.max_pixels // RULES.factor**2
SQUARE = replace(RULES, square=128)
SMALL = {
    **CONFIG,
    "size": {"shortest_edge": 256, "longest_edge": 16384},
    "patch_size": 4,
    "temporal_patch_size": 3,
    "merge_size": 3,
    "image_mean": [0.1, 0.5, 0.7],
    "image_std": [0.3, 0.2, 0.9],
    "resample": 2,
}


def _reference(config: dict[str, Any], image: Any, cap: int) -> tuple[Any, Any]:
    factor = config["patch_size"] * config["merge_size"]
    limits = config["size"]
    longest = min(limits["longest_edge"], cap * factor**2)
    size = {"shortest_edge": min(limits["shortest_edge"], longest), "longest_edge": longest}
    processor = Qwen2VLImageProcessorPil(**{**config, "size": size})
    output = processor(images=[image], return_tensors="np")
    return output["pixel_values"], output["image_grid_thw"]


@pytest.mark.parametrize("config", [CONFIG, SMALL], ids=["published", "odd"])
@pytest.mark.parametrize(
    ("width", "height"),
    [(1, 1), (3, 200), (200, 3), (64, 64), (333, 217), (640, 480), (1400, 1100), (31, 47)],
)
def test_patches_equal_the_checkpoints_own_processor_to_the_bit(
    config: dict[str, Any], width: int, height: int
) -> None:
    image = noise(width, height)
    cap = DEFAULT_MAX_IMAGE_TOKENS
    rows, grid_h, grid_w = patchify(image, PictureRules.from_config(config), cap)
    expected, grid = _reference(config, image, cap)
    assert grid.tolist() == [[1, grid_h, grid_w]]
    assert rows.dtype == expected.dtype == np.float32
    assert np.array_equal(rows, expected)


@settings(max_examples=400, deadline=None)
@given(width=st.integers(1, 9000), height=st.integers(1, 9000), cap=st.integers(64, 20_000))
def test_sizes_equal_the_processors_rule(width: int, height: int, cap: int) -> None:
    if max(width, height) > 200 * min(width, height):
        with pytest.raises(PictureError, match="200 times"):
            fitted_size(width, height, RULES, cap)
        return
    longest = min(RULES.max_pixels, cap * RULES.factor**2)
    shortest = min(RULES.min_pixels, longest)
    expected_h, expected_w = smart_resize(height, width, RULES.factor, shortest, longest)
    if expected_h * expected_w <= longest:
        assert fitted_size(width, height, RULES, cap) == (expected_w, expected_h)
    else:  # the processor lets a long thin picture pass a small limit; the cap does not
        assert token_count(width, height, cap) <= cap


@given(
    patch=st.sampled_from([1, 2, 16]),
    merge=st.integers(1, 3),
    frames=st.integers(1, 3),
    width=st.integers(1, 100),
    height=st.integers(1, 100),
)
def test_patches_lie_in_memory_row_by_row_as_a_graph_takes_them(
    patch: int, merge: int, frames: int, width: int, height: int
) -> None:
    rules = replace(
        RULES, patch_size=patch, merge_size=merge, temporal_patch_size=frames, min_pixels=1
    )
    rows, _, _ = patchify(Image.new("RGB", (width, height)), rules)
    assert rows.flags.c_contiguous


def test_one_token_is_one_block_of_the_picture() -> None:
    image = noise(96, 64)
    rules = PictureRules.from_config(
        {**CONFIG, "size": {"shortest_edge": 1, "longest_edge": 10**6}}
    )
    rows, _, grid_w = patchify(image, rules)
    assert grid_w == 6
    block = rows[4 * 4 : 5 * 4].reshape(2, 2, 3, 2, 16, 16)  # the fifth token: row 1, column 1
    pixels = block[:, :, :, 0].transpose(0, 3, 1, 4, 2).reshape(32, 32, 3)
    expected = np.asarray(image)[32:64, 32:64] / 127.5 - 1
    assert np.allclose(pixels, expected, atol=1e-6)
    assert np.array_equal(block[:, :, :, 0], block[:, :, :, 1])


def test_a_twelve_megapixel_photo_is_capped() -> None:
    assert token_count(4000, 3000, NO_CAP) == 11750
    assert fitted_size(4000, 3000, RULES) == (1152, 864)
    assert token_count(4000, 3000) == 972


def test_a_cap_under_the_least_area_wins_over_it() -> None:
    assert token_count(640, 640, 4) == 4
    assert token_count(1, 1, 1) == 1


@pytest.mark.parametrize(("width", "height"), [(201, 1), (1, 201), (20_001, 100)])
def test_a_strip_over_the_aspect_limit_is_refused(width: int, height: int) -> None:
    with pytest.raises(PictureError, match=f"a.png has {width} x {height} pixels, more than 200"):
        fitted_size(width, height, RULES, name="a.png")


@pytest.mark.parametrize(("width", "height"), [(200, 1), (1, 200), (20_000, 100)])
def test_a_strip_at_the_aspect_limit_is_taken(width: int, height: int) -> None:
    assert 1 <= token_count(width, height) <= 1024


def test_a_cap_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="0 picture tokens"):
        token_count(10, 10, 0)


@given(width=st.integers(1, 20_000), ratio=st.floats(1 / 200, 200), cap=st.integers(1, NO_CAP))
def test_tokens_never_pass_the_cap_and_sides_lie_on_the_grid(
    width: int, ratio: float, cap: int
) -> None:
    height = min(max(1, -(-width // 200), round(width * ratio)), width * 200)
    fitted_w, fitted_h = fitted_size(width, height, RULES, cap)
    assert fitted_w % RULES.factor == fitted_h % RULES.factor == 0
    assert 1 <= token_count(width, height, cap) <= cap


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


def test_the_square_of_a_very_long_picture_is_not_made_in_full() -> None:
    rows, _, _ = patchify(Image.new("RGB", (60_000, 400), "white"), SQUARE)

    lit = (rows > -0.9).any(axis=1).sum()
    assert 0 < lit <= 16  # a line through the middle two rows of patches
