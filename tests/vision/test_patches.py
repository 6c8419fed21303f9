from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
    Qwen2VLImageProcessorPil,
    smart_resize,
)

from q35chat.errors import PictureError
from q35chat.vision.patches import patchify, prepare
from q35chat.vision.resize import fitted_size
from q35chat.vision.rules import DEFAULT_MAX_IMAGE_TOKENS, PictureRules
from tests.vision.files import noise, sample
from tests.vision.rules import CONFIG, RULES, token_count

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


def test_a_picture_knows_its_grid_tokens_and_the_hash_of_its_file() -> None:
    data = sample("PNG", 100, 60)
    picture = prepare(data, "a.png", RULES)
    assert picture.sha256 == hashlib.sha256(data).hexdigest()
    assert (picture.width, picture.height) == (100, 60)
    assert picture.patches.shape == (picture.grid_h * picture.grid_w, RULES.patch_values)
    assert picture.tokens == picture.grid_h * picture.grid_w // 4 == token_count(100, 60)
    assert picture.patches.flags.c_contiguous


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
