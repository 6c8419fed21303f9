from __future__ import annotations

import numpy as np
import pytest

from tests.ascend.conftest import Export
from tests.support.ascend import encode_picture

GRIDS = [(2, 2), (4, 4), (2, 8), (8, 2), (6, 10), (2, 14)]


@pytest.mark.parametrize("gear", [16, 64])
@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: f"{grid[0]}x{grid[1]}")
@pytest.mark.parametrize("shape", ["plain", "even", "narrow_key"])
def test_padding_to_a_gear_leaves_a_picture_of_any_shape_as_it_is(
    exported: Export, shape: str, grid: tuple[int, int], gear: int
) -> None:
    graphs = exported(shape, dtype="fp32", image_gears=(16, 64))
    count = grid[0] * grid[1]
    pixels = np.random.default_rng(count).uniform(-1, 1, (count, graphs.config.vision.patch_width))
    exact = encode_picture(graphs, pixels, grid)
    padded = encode_picture(graphs, pixels, grid, gear)
    assert padded.shape == (count // 4, graphs.config.text.hidden_size)
    np.testing.assert_allclose(padded, exact, atol=2e-5)


def test_fp16_rows_are_near_those_of_fp32(exported: Export) -> None:
    pixels = np.random.default_rng(0).uniform(-1, 1, (24, 1536))
    rows = [
        encode_picture(exported("plain", dtype=dtype), pixels, (4, 6), 16).astype(np.float32)
        for dtype in ("fp16", "fp32")
    ]
    np.testing.assert_allclose(rows[0], rows[1], atol=0.02)
