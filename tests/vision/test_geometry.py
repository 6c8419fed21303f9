from __future__ import annotations

import numpy as np
import pytest

from q35chat.vision.geometry import geometry, merge_block_order

GRIDS = [(2, 2), (2, 4), (4, 2), (6, 8), (48, 48), (64, 48), (2, 90), (54, 72), (128, 2)]


def test_patches_come_block_by_block() -> None:
    assert merge_block_order(2, 4, 2).tolist() == [
        [0, 0], [0, 1], [1, 0], [1, 1],
        [0, 2], [0, 3], [1, 2], [1, 3],
    ]  # fmt: skip


def test_without_merging_the_order_is_row_by_row() -> None:
    assert merge_block_order(2, 2, 1).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]


def test_corners_of_the_grid_are_corners_of_the_table() -> None:
    found = geometry(2, 2, side=5, merge=2)
    assert found.position_index[:, 0].tolist() == [0, 4, 20, 24]
    assert found.position_weight.tolist() == [[1, 0, 0, 0]] * 4


def test_a_place_between_rows_is_shared_by_hand_derived_weights() -> None:
    # four rows over a table of three: places 0, 2/3, 4/3, 2; two columns: places 0 and 2
    found = geometry(4, 2, side=3, merge=2)
    assert found.patch_position[2].tolist() == [1, 0]
    assert found.position_index[2].tolist() == [0, 1, 3, 4]
    assert found.position_weight[2] == pytest.approx([1 / 3, 0, 2 / 3, 0])
    assert found.patch_position[5].tolist() == [2, 1]
    assert found.position_index[5].tolist() == [5, 5, 8, 8]
    assert found.position_weight[5] == pytest.approx([2 / 3, 0, 1 / 3, 0])


def test_a_grid_as_fine_as_the_table_reads_it_as_it_is() -> None:
    found = geometry(6, 6, side=6, merge=2)
    rows, cols = found.patch_position.T
    assert np.array_equal(found.position_index[:, 0], rows * 6 + cols)
    assert np.allclose(found.position_weight, [1, 0, 0, 0])


@pytest.mark.parametrize(("grid_h", "grid_w"), GRIDS)
def test_shares_sum_to_one_and_taps_stay_in_the_table(grid_h: int, grid_w: int) -> None:
    found = geometry(grid_h, grid_w, side=48, merge=2)
    assert found.position_index.shape == found.position_weight.shape == (grid_h * grid_w, 4)
    assert found.position_index.dtype == found.patch_position.dtype == np.dtype(np.int64)
    assert found.position_weight.dtype == np.dtype(np.float32)
    assert found.position_index.min() >= 0
    assert found.position_index.max() < 48 * 48
    assert np.allclose(found.position_weight.sum(axis=1), 1, atol=1e-6)
    assert len(np.unique(found.patch_position, axis=0)) == grid_h * grid_w


@pytest.mark.parametrize(("grid_h", "grid_w"), [(0, 2), (3, 2), (2, 5)])
def test_a_grid_without_whole_blocks_is_an_error(grid_h: int, grid_w: int) -> None:
    with pytest.raises(ValueError, match=f"{grid_h} x {grid_w} patches cannot be cut"):
        geometry(grid_h, grid_w, side=48, merge=2)


@pytest.mark.parity
@pytest.mark.parametrize("merge", [1, 2])
@pytest.mark.parametrize("side", [4, 7, 48])
def test_geometry_equals_transformers_to_the_bit(side: int, merge: int) -> None:
    import torch  # noqa: PLC0415
    from transformers import vision_utils  # noqa: PLC0415

    for grid_h, grid_w in GRIDS:
        grid = torch.tensor([[1, grid_h, grid_w]])
        index, weight = vision_utils.get_vision_interpolation_indices_and_weights(
            grid, side, mode="bilinear", align_corners=True, spatial_merge_size=merge
        )
        position = vision_utils.get_vision_position_ids(grid, merge)
        found = geometry(grid_h, grid_w, side, merge)
        assert np.array_equal(found.position_index, index.numpy())
        assert np.array_equal(found.position_weight, weight.numpy())
        assert np.array_equal(found.patch_position, position.numpy())
