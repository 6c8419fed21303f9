"""Which weights are stored how, for each precision.

Small projections that steer the recurrent state, norms and the convolution stay in float; the
measured errors and speeds behind each choice are in `export/README.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from q35export.matrix import Matrix
from q35export.quantize import BlockFormat, Codes, Float32, dequantize, quantize
from q35export.request import BLOCK_SIZES, Precision
from q35export.weights import CodesAt

MANY_WEIGHTS = 1 << 20
"""A matrix of so many is read from memory, not from a cache, and its bytes decide its speed."""
_FEW_BITS = 4
_NARROW = 32
"""The block of matrices whose inputs are not turned and have outliers: at 8 bits rounding those to
int8 is most of the error, and a block shares it."""
LOGIT_GROUP = 64
"""Neighbouring tokens whose largest logit stands for them all."""
REFINED_GROUPS = 16
"""Groups whose logits are made with fine codes: those of the largest logits."""


@dataclass(frozen=True, slots=True)
class Quantisation:
    """How a group of weights is quantised: bits of a code, and values of a block.

    Without `block` each matrix has the one that suits it. `fine` keeps codes of what rounding left
    over beside those of 4 bits: they are added to rows that are looked up, and to the largest
    products.
    """

    bits: int
    block: int | None = None
    fine: bool = False

    def refines(self, n: int, fmt: BlockFormat) -> bool:
        """Whether a matrix of `n` rows in a format of this group has fine codes."""
        return self.fine and fmt.bits == _FEW_BITS and n % LOGIT_GROUP == 0

    def format_of(self, n: int, k: int) -> BlockFormat:
        """The format of a matrix `[n, k]`.

        A large matrix takes the largest block that divides its rows, for speed; a small one, whose
        speed does not matter, the smallest, for exactness.
        """
        fitting = [size for size in BLOCK_SIZES if k % size == 0 and n * k >= MANY_WEIGHTS]
        return BlockFormat(self.bits, self.block or max(fitting, default=min(BLOCK_SIZES)))


@dataclass(frozen=True, slots=True, eq=False)
class StoredAs:
    """How one matrix is stored where a calibration decided: its format, what reads its codes
    `[n, blocks, block_bytes]` and scales `[n, blocks]` once they are known, and where they lie if
    that is in a file."""

    fmt: BlockFormat
    read: Callable[[], tuple[Codes, Float32]] | None = None
    at: CodesAt | None = None


def fine_name(name: str) -> str:
    """What the fine codes of a matrix are called."""
    return f"{name}.fine"


def left_over(weights: Matrix, known: StoredAs) -> Matrix:
    """What is missing of `weights` once they are stored so."""

    def rows(start: int, stop: int) -> Float32:
        exact = weights.rows(start, stop)
        if known.read is None:
            return exact - dequantize(*quantize(exact, known.fmt), weights.k, known.fmt)
        codes, scales = known.read()
        return exact - dequantize(codes[start:stop], scales[start:stop], weights.k, known.fmt)

    return Matrix(weights.n, weights.k, rows)


@dataclass(frozen=True, slots=True)
class PrecisionPlan:
    """How each group of weights is quantised; None keeps FP32.

    `writers` are the decoder's matrices that write to the residual stream, `decoder` its others.
    With `turned` the residual stream is turned (`q35export.calibration.rotation`); `matrices` are
    those of the decoder that a calibration decided on, by their names in the graph. `steps` has the
    matrices of the decoder that an NPU multiplies in int8, and what the codes of their inputs are
    worth (`q35export.int8_rows`); all others are floats there.
    """

    decoder: Quantisation | None = None
    writers: Quantisation | None = None
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
        "int8": PrecisionPlan(eight, Quantisation(8, block_size or _NARROW), eight, eight),
        "int4": PrecisionPlan(four, four, replace(four, fine=True), eight),
        "int4-exact": PrecisionPlan(four, four, replace(four, fine=True), eight),
        "w8a8": PrecisionPlan(eight, eight, eight),
    }
    return plans[precision]
