"""Which weights are stored how, for each `--precision`.

Small projections that steer the recurrent state, norms and the convolution stay in float; the
measured errors behind each choice are in `export/README.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from q35export.quantize import BlockFormat

Precision = Literal["fp32", "int8", "int4"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


@dataclass(frozen=True, slots=True)
class PrecisionPlan:
    """The block format of each group of weights; None keeps FP32."""

    decoder: BlockFormat | None
    head: BlockFormat | None
    vision: BlockFormat | None


_INT8 = BlockFormat(bits=8, block=32)

PLANS: dict[Precision, PrecisionPlan] = {
    "fp32": PrecisionPlan(decoder=None, head=None, vision=None),
    "int8": PrecisionPlan(decoder=_INT8, head=_INT8, vision=_INT8),
    "int4": PrecisionPlan(
        decoder=BlockFormat(bits=4, block=32), head=BlockFormat(bits=4, block=32), vision=_INT8
    ),
}
