"""Weight matrices as row sources: what a projection multiplies by, without holding it.

Projections that read the same input are stacked into one matrix; rows may be reordered on the
way. Nothing is read before `rows` is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Shape = tuple[int, ...]

# Canonical names are those of transformers' `Qwen3_5ForConditionalGeneration` state dict.
TEXT = "model.language_model."
VISION = "model.visual."
EMBEDDING = f"{TEXT}embed_tokens.weight"
HEAD = "lm_head.weight"
MTP = "mtp."

_PIECE_VALUES = 1 << 22
_MATRIX_AXES = 2


class TensorSource(Protocol):
    """Where weights come from, by canonical name, always as FP32."""

    def expect(self, name: str, shape: Shape) -> None:
        """Hear, before the tensor is read, that the model has one of this name and shape."""

    def read(self, name: str) -> Float32:
        """Return the whole tensor, FP32, in the shape that it has in the checkpoint."""

    def rows(self, name: str, start: int, stop: int) -> Float32:
        """Return `tensor[start:stop]` along the first axis, FP32."""


class HeldTensors:
    """A source whose matrices stay in memory once they are read; those of experts are too large."""

    def __init__(self, source: TensorSource) -> None:
        self._source = source
        self._shapes: dict[str, Shape] = {}
        self._held: dict[str, Float32] = {}

    def expect(self, name: str, shape: Shape) -> None:
        """Hear, before the tensor is read, that the model has one of this name and shape."""
        self._shapes[name] = shape
        self._source.expect(name, shape)

    def read(self, name: str) -> Float32:
        """Return the whole tensor, FP32, in the shape that it has in the checkpoint."""
        return self._source.read(name)

    def rows(self, name: str, start: int, stop: int) -> Float32:
        """Return `tensor[start:stop]` along the first axis, FP32."""
        shape = self._shapes[name]
        if len(shape) != _MATRIX_AXES:
            return self._source.rows(name, start, stop)
        if name not in self._held:
            self._held[name] = self._source.rows(name, 0, shape[0])
        return self._held[name][start:stop]


@dataclass(frozen=True, slots=True)
class Matrix:
    """`[n, k]` weights of a projection `y = x @ w.T`; `rows(start, stop)` reads a slice.

    `group` rows are read at once, whichever of them are asked for: those of one expert.
    """

    n: int
    k: int
    rows: Callable[[int, int], Float32]
    group: int = 1

    def spans(self, values: int = _PIECE_VALUES) -> Iterator[tuple[int, int]]:
        """The first row and the one after the last of pieces of about so many values, in whole
        groups."""
        step = max(1, values // (self.k * self.group)) * self.group
        for start in range(0, self.n, step):
            yield start, min(start + step, self.n)


def matrix(source: TensorSource, name: str, shape: Shape) -> Matrix:
    """The tensor `name` of `shape`, its trailing axes flattened."""
    source.expect(name, shape)
    width = int(np.prod(shape[1:], dtype=np.int64))

    def rows(start: int, stop: int) -> Float32:
        return source.rows(name, start, stop).reshape(stop - start, width)

    return Matrix(shape[0], width, rows)


def expert_rows(
    source: TensorSource, name: str, shape: tuple[int, int, int], *, interleaved: bool = False
) -> Matrix:
    """The matrices `[n, k]` of all experts in the tensor `name` `[E, n, k]`, one below the other.

    With `interleaved` the rows of the first and of the second half of each take turns. Only the
    experts whose rows are asked for are read.
    """
    source.expect(name, shape)
    count, n, k = shape

    def rows(start: int, stop: int) -> Float32:
        first = start // n
        found = source.rows(name, first, -(-stop // n))
        if interleaved:
            found = found.reshape(-1, 2, n // 2, k).swapaxes(1, 2)
        return found.reshape(-1, k)[start - first * n : stop - first * n]

    return Matrix(count * n, k, rows, group=n)


def stack(*parts: Matrix) -> Matrix:
    """Matrices of one width, one below the other."""
    width = parts[0].k
    if any(part.k != width for part in parts):
        raise ValueError(f"stacked matrices differ in width: {[part.k for part in parts]}")
    offsets = np.cumsum([0, *(part.n for part in parts)]).tolist()

    def rows(start: int, stop: int) -> Float32:
        pieces = [
            part.rows(max(start - low, 0), min(stop - low, part.n))
            for part, low in zip(parts, offsets, strict=False)
            if low < stop and start < low + part.n
        ]
        return np.concatenate(pieces) if len(pieces) != 1 else pieces[0]

    return Matrix(offsets[-1], width, rows)


def take_blocks(whole: Matrix, block: int, every: int, offset: int) -> Matrix:
    """Blocks `offset`, `offset + every`, ... of `block` rows each, in order.

    Undoes an interleaving such as Qwen3.5's `q_proj`, where each head's query rows are followed
    by its gate rows.
    """
    count = whole.n // (block * every)

    def rows(start: int, stop: int) -> Float32:
        pieces = []
        row = start
        while row < stop:
            head, within = divmod(row, block)
            take = min(block - within, stop - row)
            first = (head * every + offset) * block + within
            pieces.append(whole.rows(first, first + take))
            row += take
        return np.concatenate(pieces)

    return Matrix(count * block, whole.k, rows)
