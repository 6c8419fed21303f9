"""What shapes the 310P graphs, checked: capacity, gears, dtype, which kernels are fused.

A gear is a length that the converted graph accepts; anything shorter is padded to the next one.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from q35chat.errors import Option, Remedy, UsageError
from q35export.ascend.ops import MOST_STEP_TOKENS
from q35export.request import DEFAULT_CAPACITY, DEFAULT_IMAGE_GEARS, DTYPES, DType, check_gears

DEFAULT_GEARS = (32, 512, 1024, 2048)
LONGEST_INT8 = 512
"""Rows of an int8 multiplication: with 1024 and more its kernel has been seen to crash (the scripts
for Qwen3-8B in mindspore-ai/mindspore-lite at 7608e3b3)."""


def default_gears(capacity: int, *, w8a8: bool = False) -> tuple[int, ...]:
    """The usual prefill lengths that fit; the capacity itself where none does. In int8 only those
    that its kernel takes."""
    longest = min(capacity, LONGEST_INT8) if w8a8 else capacity
    return tuple(gear for gear in DEFAULT_GEARS if gear <= longest) or (longest,)


@dataclass(frozen=True, slots=True)
class AscendOptions:
    """Options of the three graphs; wrong ones raise UsageError.

    `capacity` is the number of KV slots; `gears` are prefill lengths (none given: the usual ones
    that fit, with `w8a8` those that an int8 multiplication takes), `image_gears` picture tokens;
    `dtype` holds outside the kernels. Without `fused_decode` the KV cache grows, and a prefill
    takes no states. A step takes up to `step_tokens`, and so does a prefill that decodes, which
    then has their gears, too.
    """

    capacity: int = DEFAULT_CAPACITY
    gears: tuple[int, ...] = ()
    image_gears: tuple[int, ...] = DEFAULT_IMAGE_GEARS
    dtype: DType = "fp16"
    w8a8: bool = False
    fused_prefill: bool = True
    fused_decode: bool = True
    stateless_prefill: bool = False
    step_tokens: int = 1

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise UsageError(f"{Option.MAX_SEQ_LEN} must be at least 1, found {self.capacity}")
        if self.dtype not in DTYPES:
            raise UsageError(f"{Option.DTYPE} must be fp16 or fp32, found {self.dtype!r}")
        check_gears(Option.IMAGE_GEARS, self.image_gears)
        if not self.image_gears:
            raise UsageError(f"{Option.IMAGE_GEARS} names no length; give at least one, such as 16")
        self._check_step()
        if not self.gears:
            object.__setattr__(self, "gears", default_gears(self.capacity, w8a8=self.w8a8))
        check_gears(Option.GEARS, self.gears)
        if self.prefill_rows > 1:
            several = {*self.gears, *range(1, self.step_tokens + 1)}
            object.__setattr__(self, "gears", tuple(sorted(several)))
        if max(self.gears) > self.capacity:
            raise UsageError(
                f"{Option.GEARS} must be in 1 to {self.capacity} ({Option.MAX_SEQ_LEN}), "
                f"found {max(self.gears)}",
                Remedy.LARGER_CAPACITY_OR_SMALLER_GEARS,
            )

    def _check_step(self) -> None:
        most = min(MOST_STEP_TOKENS, self.capacity)
        if not 1 <= self.step_tokens <= most:
            raise UsageError(f"{Option.STEP_TOKENS} must be 1 to {most}, found {self.step_tokens}")
        if self.step_tokens > 1 and not self.fused_decode:
            raise UsageError(
                f"{Option.STEP_TOKENS} {self.step_tokens} needs a cache of fixed capacity: leave "
                f"out {Option.NO_FUSED_DECODE}"
            )

    @property
    def prefill_rows(self) -> int:
        """Of how many of the last tokens a prefill has logits: more than one where it decodes, too,
        several tokens a step."""
        return self.step_tokens if self.stateful_prefill and 1 in self.gears else 1

    @property
    def fixed_cache(self) -> bool:
        """Whether the KV cache has `capacity` slots from the start; else it grows."""
        return self.fused_decode

    @property
    def stateful_prefill(self) -> bool:
        """Whether a prefill goes on from the states of the tokens before it."""
        return self.fixed_cache and not self.stateless_prefill

    @property
    def float_type(self) -> ir.DataType:
        """The dtype of activations, weights, pictures, logits and convolution states."""
        return ir.DataType.FLOAT16 if self.dtype == "fp16" else ir.DataType.FLOAT

    @property
    def cache_type(self) -> ir.DataType:
        """The dtype of the KV cache: FP16 wherever a kernel reads it."""
        return ir.DataType.FLOAT16 if self.fused_decode else self.float_type

    def metadata(self) -> dict[str, str]:
        """What a graph says of these options."""
        return {
            "q35chat.target": "ascend-310p",
            "q35chat.dtype": self.dtype,
            "q35chat.gears": ",".join(map(str, self.gears)),
            "q35chat.image_gears": ",".join(map(str, self.image_gears)),
        }
