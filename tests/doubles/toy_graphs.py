"""Tiny graphs for the MindSpore Lite stand-in, each made by one function of plain arguments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.doubles.mindspore_lite.modelfile import Array, Port

FLOAT, HALF, INT = np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.int32)


@dataclass(frozen=True, slots=True)
class Counter:
    """`total` is `past_sum` and the sum of `numbers`; `numbers` may have a free axis."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def run(self, arrays: list[Array]) -> list[Array]:
        numbers, past = arrays
        total = past + numbers.sum(dtype=FLOAT)
        return [total[:, :1] * 2, total]


def counter(length: int = -1, name: str = "numbers") -> Counter:
    """`length` -1 is a free axis."""
    state = (1, 4)
    return Counter(
        (Port(name, (1, length), FLOAT), Port("past_sum", state, FLOAT)),
        (Port("double", (1, 1), FLOAT), Port("present_sum", state, FLOAT)),
    )


def lost_rank() -> Counter:
    """The counter as a file tells its outputs before it has run."""
    whole = counter()
    return Counter(whole.inputs, tuple(Port(port.name, (-1,), FLOAT) for port in whole.outputs))


def half() -> Counter:
    """A graph of another float type, to be fed in it."""
    return Counter((Port("numbers", (1, 2), HALF), Port("past_sum", (1, 4), FLOAT)),
                   counter().outputs)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tower:
    """A vision graph that says what it takes and is never run."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def run(self, arrays: list[Array]) -> list[Array]:
        raise AssertionError("nobody can feed it")


def tower(patches: int, width: int) -> Tower:
    """`patches` -1 is a free axis."""
    return Tower(
        (Port("pixel_values", (patches, 1536), HALF),),
        (Port("image_embeds", (-1 if patches < 0 else patches // 4, width), HALF),),
    )
