"""mRoPE positions of text and pictures mixed: temporal, height and width of every token.

Pure numpy. The rule is that of transformers' `get_rope_index` for Qwen3.5 with still pictures: a
text token advances all three by one; a picture's tokens share one temporal position and count
rows and columns from it; what follows starts after the longer side.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


def mrope_positions(
    is_image: npt.NDArray[np.bool_], grids: Sequence[tuple[int, int]]
) -> tuple[IntArray, int]:
    """Positions [3, T] int64 of T tokens, and the rope delta.

    `is_image` [T] marks picture tokens; `grids` are the (rows, columns) of tokens of each picture
    in order. The token at slot `i >= T` has position `i + delta` on all three axes. Raises
    ValueError when the marked tokens are not exactly those of the grids.
    """
    marked, wanted = int(is_image.sum()), sum(rows * columns for rows, columns in grids)
    if marked != wanted:
        raise ValueError(f"{marked} picture tokens, but the grids have {wanted}")
    positions = np.empty((3, len(is_image)), np.int64)
    place = next_position = 0
    starts = np.flatnonzero(is_image)
    for rows, columns in grids:
        begin = int(starts[0])
        positions[:, place:begin] = np.arange(next_position, next_position + begin - place)
        next_position += begin - place
        place = begin + rows * columns
        if not is_image[begin:place].all():
            raise ValueError(f"the picture at token {begin} is not {rows * columns} tokens long")
        row, column = np.indices((rows, columns), dtype=np.int64).reshape(2, -1)
        positions[:, begin:place] = next_position + np.stack([np.zeros_like(row), row, column])
        next_position += max(rows, columns)
        starts = starts[rows * columns :]
    positions[:, place:] = np.arange(next_position, next_position + len(is_image) - place)
    return positions, next_position - place
