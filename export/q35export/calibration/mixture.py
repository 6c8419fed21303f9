"""The experts of one layer over the calibration text, one expert in memory at a time.

Beside the graph of the layer (`layers`), which would need all of them at once in FP32. A token goes
through the k experts of the largest scores, weighted by their softmax, as ONNX Runtime's `MoE` and
`QMoE` do it; the latter rounds what goes into a product to int8, block by block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from q35export.config import Experts
from q35export.matrix import Float32, Matrix
from q35export.precision import StoredAs
from q35export.quantize import BlockFormat, dequantize

Int64 = npt.NDArray[np.int64]
_INT8 = np.float32(127)
_IN_INT8 = 4


@dataclass(frozen=True, slots=True, eq=False)
class Routed:
    """What the experts of a layer are given: normalised rows `[T, H]` and the router's scores
    `[T, E]`."""

    rows: Float32
    scores: Float32


class Mixture:
    """All experts of a layer; matrices that are `stored` are multiplied so, the others in FP32.

    `gate_up` is `[E * 2I, H]`, the rows of gate and up in turn, `down` `[E * H, I]`, each with the
    name under which it is stored.
    """

    def __init__(
        self,
        experts: Experts,
        gate_up: tuple[str, Matrix],
        down: tuple[str, Matrix],
        stored: Mapping[str, StoredAs],
    ) -> None:
        self._experts = experts
        self._gate_up = _Weights(*gate_up, experts.count, stored)
        self._down = _Weights(*down, experts.count, stored)

    def run(self, given: Routed) -> Float32:
        """The weighted sum of what the experts make of each row, `[T, H]`."""
        found = np.zeros_like(given.rows)
        for expert, tokens, weights in self._turns(given.scores):
            inner = self._inner(expert, given.rows[tokens])
            found[tokens] += weights[:, None] * self._down.multiply(expert, inner)
        return found

    def moments(self, given: Routed) -> Float32:
        """`XᵀX` `[E, I, I]` of what each expert's `down` reads; zeros where no token came."""
        width = self._experts.width
        found = np.zeros((self._experts.count, width, width), np.float32)
        for expert, tokens, _ in self._turns(given.scores):
            inner = self._inner(expert, given.rows[tokens])
            found[expert] = inner.T @ inner
        return found

    def _inner(self, expert: int, rows: Float32) -> Float32:
        both = self._gate_up.multiply(expert, rows)
        gate, up = both[:, 0::2], both[:, 1::2]
        inner: Float32 = gate / (1 + np.exp(-gate)) * up
        return inner

    def _turns(self, scores: Float32) -> Iterator[tuple[int, Int64, Float32]]:
        """Each expert with its tokens and their weights."""
        kept, chosen = routing(scores, self._experts)
        for expert in range(self._experts.count):
            tokens, places = np.nonzero(chosen == expert)
            if len(tokens):
                yield expert, tokens, kept[tokens, places]


def routing(scores: Float32, experts: Experts) -> tuple[Float32, Int64]:
    """Weights and numbers `[T, k]` of the experts that each token takes, best first."""
    chosen = np.argsort(-scores, axis=-1, kind="stable")[:, : experts.chosen]
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    kept = np.take_along_axis(shares, chosen, axis=-1)
    if experts.normalised:
        kept /= kept.sum(axis=-1, keepdims=True)
    return kept, chosen


class _Weights:
    """The matrices of one kind, read expert by expert."""

    def __init__(
        self, name: str, weights: Matrix, count: int, stored: Mapping[str, StoredAs]
    ) -> None:
        self._weights = weights
        self._rows = weights.n // count
        self._known = stored.get(name)
        self._codes = None
        if self._known is not None:
            assert self._known.read is not None
            self._codes = self._known.read()

    def multiply(self, expert: int, x: Float32) -> Float32:
        """`x @ w.T` with the matrix of one expert."""
        span = slice(expert * self._rows, (expert + 1) * self._rows)
        if self._codes is None or self._known is None:
            matrix = self._weights.rows(span.start, span.stop)
        else:
            codes, scales = self._codes
            matrix = dequantize(codes[span], scales[span], self._weights.k, self._known.fmt)
            x = as_multiplied(x, self._known.fmt)
        product: Float32 = x @ matrix.T
        return product


def as_multiplied(x: Float32, fmt: BlockFormat) -> Float32:
    """`x` `[T, k]` as the kernel multiplies it: in int8 with one scale a block."""
    if fmt.accuracy_level != _IN_INT8:
        return x
    blocks = x.reshape(len(x), -1, fmt.block)
    scale = np.abs(blocks).max(axis=-1, keepdims=True) / _INT8
    safe = np.where(scale == 0, np.float32(1), scale)
    rounded: Float32 = (np.rint(blocks / safe) * scale).reshape(x.shape)
    return rounded
