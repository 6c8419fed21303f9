"""How far a tensor lies from its reference: cosine, NRMSE, largest error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
PIECE_VALUES = 1 << 22
"""About so many values of a matrix are worked on at a time."""


@dataclass(frozen=True, slots=True)
class Difference:
    """`nrmse` is the RMS error over the RMS of the reference; `max_abs` in the tensor's unit."""

    cosine: float
    nrmse: float
    max_abs: float


def difference(found: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> Difference:
    """Compare two arrays of one shape; a pair of zeros is equal. ValueError for other shapes.

    Sums are FP64, of a piece at a time, so that the largest matrix needs no copy.
    """
    if found.shape != wanted.shape:
        raise ValueError(f"shapes differ: {found.shape} and {wanted.shape}")
    product, found_square, wanted_square, error_square, most = 0.0, 0.0, 0.0, 0.0, np.float64(0)
    for a, b in _pieces(found.reshape(-1), wanted.reshape(-1)):
        error = a - b
        product += float(a @ b)
        found_square += float(a @ a)
        wanted_square += float(b @ b)
        error_square += float(error @ error)
        most = np.maximum(most, np.abs(error).max())
    if error_square == 0:
        return Difference(1.0, 0.0, 0.0)
    norms = (found_square * wanted_square) ** 0.5
    return Difference(
        cosine=product / norms if norms else 0.0,
        nrmse=(error_square / wanted_square) ** 0.5 if wanted_square else float("inf"),
        max_abs=float(most),
    )


def _pieces(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Iterator[tuple[Float64, Float64]]:
    for start in range(0, len(a), PIECE_VALUES):
        piece = slice(start, start + PIECE_VALUES)
        yield a[piece].astype(np.float64), b[piece].astype(np.float64)


def worst(differences: list[Difference]) -> Difference:
    """The worst of each measure."""
    return Difference(
        cosine=min(item.cosine for item in differences),
        nrmse=max(item.nrmse for item in differences),
        max_abs=max(item.max_abs for item in differences),
    )
