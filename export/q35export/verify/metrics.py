"""How far a tensor lies from its reference: cosine, NRMSE, largest error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Difference:
    """`nrmse` is the RMS error over the RMS of the reference; `max_abs` in the tensor's unit."""

    cosine: float
    nrmse: float
    max_abs: float


def difference(found: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> Difference:
    """Compare two arrays of one shape; a pair of zeros is equal. ValueError for other shapes."""
    if found.shape != wanted.shape:
        raise ValueError(f"shapes differ: {found.shape} and {wanted.shape}")
    a, b = found.astype(np.float64).ravel(), wanted.astype(np.float64).ravel()
    error, norms = a - b, float(np.linalg.norm(a) * np.linalg.norm(b))
    size = float(np.linalg.norm(b))
    distance = float(np.linalg.norm(error))
    if distance == 0:
        return Difference(1.0, 0.0, 0.0)
    return Difference(
        cosine=float(a @ b) / norms if norms else 0.0,
        nrmse=distance / size if size else float("inf"),
        max_abs=float(np.abs(error).max()),
    )


def worst(differences: list[Difference]) -> Difference:
    """The worst of each measure."""
    return Difference(
        cosine=min(item.cosine for item in differences),
        nrmse=max(item.nrmse for item in differences),
        max_abs=max(item.max_abs for item in differences),
    )
