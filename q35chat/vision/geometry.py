"""Where each patch lies: taps into the learned position table, and rotary rows and columns.

Pure numpy on a grid's height and width. The formulas are those of bilinear interpolation with
aligned corners; patches come in merge-block order, as `patches` emits them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Geometry:
    """The vision graph's inputs that depend on the grid only; P = grid_h * grid_w patches.

    `position_index` [P, 4] int64 and `position_weight` [P, 4] float32: four rows of the
    side x side table (row-major) and their shares. `patch_position` [P, 2] int64: row, column.
    """

    position_index: IntArray
    position_weight: FloatArray
    patch_position: IntArray


def geometry(grid_h: int, grid_w: int, side: int, merge: int) -> Geometry:
    """The geometry of a `grid_h` x `grid_w` patch grid, for a `side` x `side` position table.

    `merge` patches a side form one token; both grid sides must be its multiples.
    """
    position = merge_block_order(grid_h, grid_w, merge)
    row_taps, row_weights = _axis_taps(position[:, 0], grid_h, side)
    col_taps, col_weights = _axis_taps(position[:, 1], grid_w, side)
    index = row_taps[:, :, None] * side + col_taps[:, None, :]
    weight = row_weights[:, :, None] * col_weights[:, None, :]
    return Geometry(index.reshape(-1, 4), weight.reshape(-1, 4), position)


def graph_inputs(
    pixels: FloatArray, grid_h: int, grid_w: int, side: int, merge: int
) -> dict[str, npt.NDArray[Any]]:
    """All that the vision graph takes of one picture, by name: its patches `pixels` [P, patch] and
    the `geometry` of their grid."""
    place = geometry(grid_h, grid_w, side, merge)
    return {
        "pixel_values": pixels,
        "position_index": place.position_index,
        "position_weight": place.position_weight,
        "patch_position": place.patch_position,
    }


def merge_block_order(grid_h: int, grid_w: int, merge: int) -> IntArray:
    """Row and column of each patch, [P, 2] int64: block by block, inside a block row by row.

    Raises ValueError if a side is not a positive multiple of `merge`.
    """
    if grid_h < 1 or grid_w < 1 or grid_h % merge or grid_w % merge:
        raise ValueError(f"{grid_h} x {grid_w} patches cannot be cut into {merge} x {merge} blocks")
    rows, cols = np.indices((grid_h, grid_w), dtype=np.int64)
    blocks = (grid_h // merge, merge, grid_w // merge, merge)
    order = [axis.reshape(blocks).transpose(0, 2, 1, 3).ravel() for axis in (rows, cols)]
    return np.stack(order, axis=-1)


def _axis_taps(index: IntArray, size: int, side: int) -> tuple[IntArray, FloatArray]:
    """The two neighbours of each place on an axis of the table, and their shares: [P, 2] each."""
    # float32 in this very order of operations: the weights must equal the reference to the bit
    place = index.astype(np.float32) * np.float32(side - 1) / np.float32(max(size - 1, 1))
    floor = np.floor(place)
    offsets = np.arange(2)
    taps = np.clip(floor.astype(np.int64)[:, None] + offsets, 0, side - 1)
    distance = np.abs(place[:, None] - floor[:, None] - offsets.astype(np.float32))
    return taps, np.clip(np.float32(1) - distance, 0, None)
