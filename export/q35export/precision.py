"""Which weights are stored how, for each `--precision`.

Small projections that steer the recurrent state, norms and the convolution stay in float; the
measured errors behind each choice are in `export/README.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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


_INT4, _INT8 = BlockFormat(bits=4, block=32), BlockFormat(bits=8, block=32)

PLANS: dict[Precision, PrecisionPlan] = {
    "fp32": PrecisionPlan(decoder=None, head=None, vision=None),
    "int8": PrecisionPlan(decoder=_INT8, head=_INT8, vision=_INT8),
    "int4": PrecisionPlan(decoder=_INT4, head=_INT4, vision=_INT8),
}


def text_plan(precision: Precision, block_size: int | None = None) -> PrecisionPlan:
    """The plan of a decoder whose projections and head have blocks of `block_size` values.

    None is the size in `PLANS`; FP32 has no blocks.
    """
    plan = PLANS[precision]
    if block_size is None:
        return plan
    decoder, head = (fmt and replace(fmt, block=block_size) for fmt in (plan.decoder, plan.head))
    return PrecisionPlan(decoder, head, plan.vision)
