"""Which weights are stored how, for each precision.

Small projections that steer the recurrent state, norms and the convolution stay in float; the
measured errors and speeds behind each choice are in `export/README.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from q35export.quantize import BlockFormat, Codes, Float32
from q35export.request import BLOCK_SIZES, Precision

MANY_WEIGHTS = 1 << 20
"""A matrix of so many is read from memory, not from a cache, and its bytes decide its speed."""


@dataclass(frozen=True, slots=True)
class Quantisation:
    """How a group of weights is quantised: bits of a code, and values of a block.

    Without `block` each matrix has the one that suits it.
    """

    bits: int
    block: int | None = None

    def format_of(self, n: int, k: int) -> BlockFormat:
        """The format of a matrix `[n, k]`.

        A large matrix takes the largest block that divides its rows, for speed; a small one, whose
        speed does not matter, the smallest, for exactness.
        """
        fitting = [size for size in BLOCK_SIZES if k % size == 0 and n * k >= MANY_WEIGHTS]
        return BlockFormat(self.bits, self.block or max(fitting, default=min(BLOCK_SIZES)))


@dataclass(frozen=True, slots=True, eq=False)
class StoredAs:
    """How one matrix is stored where a calibration decided: its format, and what reads its codes
    `[n, blocks, block_bytes]` and scales `[n, blocks]` once they are known."""

    fmt: BlockFormat
    read: Callable[[], tuple[Codes, Float32]] | None = None


@dataclass(frozen=True, slots=True)
class PrecisionPlan:
    """How each group of weights is quantised; None keeps FP32.

    With `turned` the residual stream is turned (`q35export.calibration.rotation`); `matrices` are
    those of the decoder that a calibration decided on, by their names in the graph. `steps` has the
    matrices of the decoder that an NPU multiplies in int8, and what the codes of their inputs are
    worth (`q35export.int8_rows`); all others are floats there.
    """

    decoder: Quantisation | None = None
    head: Quantisation | None = None
    vision: Quantisation | None = None
    turned: bool = False
    matrices: Mapping[str, StoredAs] = field(default_factory=dict)
    steps: Mapping[str, float] = field(default_factory=dict)

    def format_of(self, name: str, n: int, k: int, quantised: Quantisation) -> BlockFormat:
        """The format of a matrix `[n, k]` of a group, by its name in the graph."""
        decided = self.matrices.get(name)
        return decided.fmt if decided else quantised.format_of(n, k)


FLOAT_PLAN = PrecisionPlan()


def precision_plan(precision: Precision, block_size: int | None = None) -> PrecisionPlan:
    """The plan of a precision, with blocks of `block_size` values or of what suits each matrix."""
    four, eight = (Quantisation(bits, block_size) for bits in (4, 8))
    plans: dict[Precision, PrecisionPlan] = {
        "fp32": FLOAT_PLAN,
        "int8": PrecisionPlan(decoder=eight, head=eight, vision=eight),
        "int4": PrecisionPlan(decoder=four, head=four, vision=eight),
        "int4-exact": PrecisionPlan(decoder=four, head=four, vision=eight),
        "w8a8": PrecisionPlan(decoder=eight, head=eight),
    }
    return plans[precision]
