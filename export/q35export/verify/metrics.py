"""How far a tensor lies from its reference: cosine, NRMSE, largest error; and how far it may, and
where each limit comes from."""

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


@dataclass(frozen=True, slots=True)
class Limits:
    """The least cosine, the largest NRMSE and error allowed; None is no limit."""

    cosine: float
    nrmse: float
    max_abs: float | None = None

    def broken_by(self, found: Difference) -> bool:
        """Whether any of the three is overstepped; NaN oversteps them all."""
        held = found.cosine >= self.cosine and found.nrmse <= self.nrmse
        return not (held and (self.max_abs is None or found.max_abs <= self.max_abs))


# The contract's limits between a fused graph and the reference, for every tensor. Both sides have
# the same weights and FP32 arithmetic, so a sound graph stays a hundred times below them.
GRAPH = Limits(cosine=0.999, nrmse=0.02, max_abs=1.0)

# What rounding may change in one matrix, by the bits of its codes. Both are for blocks of 128, the
# largest; smaller ones lie further inside. The peak of a block is at most sqrt(128) times its RMS.
# At 8 bits no value moves by more than peak / 254: an NRMSE of 0.0446 holds for any weights, and so
# does a cosine of sqrt(1 - 0.0446**2); 0.0065 is usual for a bell curve (0.0053 in blocks of 32).
# At 4 bits half a step is peak / 16, and clipping is only chosen where it lowers the error: 0.58
# holds for any weights, 0.0974 is usual for a bell curve (0.084 in blocks of 32), 0.19 for tails as
# heavy as those of Student's t with 3 degrees of freedom; the limit has room for these. A row that
# an NPU multiplies in int8 has one scale: 0.010 is usual for a bell curve of some thousand values.
WEIGHTS = {8: Limits(cosine=0.999, nrmse=0.0446), 4: Limits(cosine=0.973, nrmse=0.23)}

# What the runtime's own rounding may add: the same weights, with inputs rounded to int8 in blocks
# of 32 (0.54 % of each), or on an NPU with one step for all. How such noise grows is a property of
# the model: in random weights of the 0.8B shape it reaches an NRMSE of 0.13 in the logits. A kernel
# that computes nonsense reaches 1.
RUNNING = Limits(cosine=0.9, nrmse=0.5)

# Against the checkpoint's own weights nothing is limited: what 4 bits cost is the model's affair.
# Random weights of the 0.8B shape, the worst case, reach an NRMSE of 0.16 at int8 and 0.9 to 1.05
# at int4. The figures are there to be looked at.
