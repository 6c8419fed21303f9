"""The gated delta rule over many tokens in standard operators, in chunks of 64.

Inside a chunk the rule is a unit-lower-triangular system. Its inverse is built by doubling: from
the inverses of the diagonal blocks of one size follow those of twice the size, so six steps of
matrix products replace 63 rows. (Squaring powers of the strict triangle would be as short, but its
terms grow like binomials when keys repeat, and cancel to nothing in FP32.)

Between chunks the state goes through `S' = A S + B`. These maps compose, so the states before all
chunks come from a scan of log2(chunks) steps over an open number of chunks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from q35export.graph import Array, Graph
from q35export.targets.base import DeltaHeads, DeltaOperands

CHUNK = 64
_HIDDEN = np.float32(-1e30)  # exp gives exactly zero


@dataclass(frozen=True, slots=True)
class _Chunks:
    """One layer's tokens, `[N, NV, 64, ...]`: query scaled, key, value, and log decay, beta."""

    query: ir.Value
    key: ir.Value
    value: ir.Value
    decay: ir.Value
    beta: ir.Value


class ChunkedRule:
    """Builds the rule for every layer of a graph; `longest` bounds the tokens of a call."""

    def __init__(self, graph: Graph, longest: int) -> None:
        self._graph = graph
        self._steps = math.ceil(math.log2(math.ceil(longest / CHUNK) + 1))
        self._lengths: tuple[ir.Value, ir.Value] | None = None

    def __call__(self, given: DeltaOperands, heads: DeltaHeads) -> tuple[ir.Value, ir.Value]:
        """The output `[T, NV, DV]` and the new state `[1, NV, DK, DV]`.

        All FP32: query, key `[T, NV, DK]`, value `[T, NV, DV]`, decay and beta `[T, NV]`.
        """
        op, ints = self._graph.op, self._graph.ints
        length, missing = self._token_lengths(given.query)
        chunks = self._cut(given, missing, heads)
        total = op("CumSum", chunks.decay, self._graph.scalar(2))
        pairwise = self._pairwise_decay(total)
        since = op("Exp", total)
        recall, write = self._solve(chunks, pairwise, since, heads)
        last = op("Slice", total, ints(CHUNK - 1), ints(CHUNK), ints(2))
        left = op("Mul", chunks.key, op("Exp", op("Sub", last, total)))
        before, after = self._states(left, recall, write, op("Exp", last), given.past, heads)
        written = op("Sub", write, op("MatMul", recall, before))
        scores = op("Mul", self._gram(chunks.query, chunks.key), pairwise)
        outside = op("MatMul", op("Mul", chunks.query, since), before)
        mixed = op("Add", outside, op("MatMul", scores, written))
        rows = op("Transpose", mixed, perm=[0, 2, 1, 3])
        flat = self._graph.reshape(rows, -1, heads.value, heads.value_dim)
        return op("Slice", flat, ints(0), length, ints(0)), after

    def _token_lengths(self, query: ir.Value) -> tuple[ir.Value, ir.Value]:
        """T and what it lacks to a multiple of 64, `[1]` each; made once."""
        if self._lengths is None:
            op, ints = self._graph.op, self._graph.ints
            length = op("Slice", op("Shape", query), ints(0), ints(1))
            chunks = op("Div", op("Add", length, ints(CHUNK - 1)), ints(CHUNK))
            missing = op("Sub", op("Mul", chunks, ints(CHUNK)), length)
            self._lengths = length, missing
        return self._lengths

    def _cut(self, given: DeltaOperands, missing: ir.Value, heads: DeltaHeads) -> _Chunks:
        """Join, pad, cut into chunks, and take apart again: one node each for all five.

        Every Pad has pads of its own: MindSpore Lite 2.0.0 misreads a tensor that two share.
        """
        op, graph = self._graph.op, self._graph
        query, key, value, _, decay, beta = given
        decay, beta = (op("Unsqueeze", rate, graph.ints(-1)) for rate in (decay, beta))
        joined = op("Concat", query, key, value, decay, beta, axis=-1)
        widths = (heads.key_dim, heads.key_dim, heads.value_dim, 1, 1)
        pads = op("Concat", graph.ints(0, 0, 0), missing, graph.ints(0, 0), axis=0)
        chunked = graph.reshape(op("Pad", joined, pads), -1, CHUNK, heads.value, sum(widths))
        query, *rest = graph.split(op("Transpose", chunked, perm=[0, 2, 1, 3]), *widths)
        scale = graph.constant(np.array([heads.scale], np.float32))
        return _Chunks(op("Mul", query, scale), *rest)

    def _pairwise_decay(self, total: ir.Value) -> ir.Value:
        """`exp(total_i - total_j)` for i >= j, else zero: `[N, NV, 64, 64]`."""
        op = self._graph.op
        upper = np.triu(np.full((CHUNK, CHUNK), _HIDDEN, np.float32), 1)
        apart = op("Sub", total, op("Transpose", total, perm=[0, 1, 3, 2]))
        return op("Exp", op("Add", apart, self._graph.constant(upper)))

    def _gram(self, rows: ir.Value, key: ir.Value) -> ir.Value:
        return self._graph.op("MatMul", rows, self._graph.op("Transpose", key, perm=[0, 1, 3, 2]))

    def _solve(
        self, chunks: _Chunks, pairwise: ir.Value, since: ir.Value, heads: DeltaHeads
    ) -> tuple[ir.Value, ir.Value]:
        """What each token takes back per unit of state, `[.., 64, DK]`, and what it writes if
        the state is zero, `[.., 64, DV]`."""
        op = self._graph.op
        key_beta = op("Mul", chunks.key, chunks.beta)
        system = op("Mul", self._gram(key_beta, chunks.key), pairwise)
        sides = op(
            "Concat",
            op("Mul", key_beta, since),
            op("Mul", chunks.value, chunks.beta),
            axis=-1,
        )
        solved = op("MatMul", self._inverse(system), sides)
        recall, write = self._graph.split(solved, heads.key_dim, heads.value_dim)
        return recall, write

    def _inverse(self, system: ir.Value) -> ir.Value:
        """Inverse of the identity plus the strict lower triangle of `system`."""
        op, constant = self._graph.op, self._graph.constant
        first = op("Mul", system, constant(_below_diagonal(1)))
        inverse = op("Sub", constant(np.eye(CHUNK, dtype=np.float32)), first)
        size = 2
        while size < CHUNK:
            below = op("Mul", system, constant(_below_diagonal(size)))
            change = op("MatMul", op("MatMul", inverse, below), inverse)
            inverse = op("Sub", inverse, change)
            size *= 2
        return inverse

    def _states(
        self,
        left: ir.Value,
        recall: ir.Value,
        write: ir.Value,
        kept: ir.Value,
        state: ir.Value,
        heads: DeltaHeads,
    ) -> tuple[ir.Value, ir.Value]:
        """The states before each chunk, `[N, NV, DK, DV]`, and after the last."""
        op, ints = self._graph.op, self._graph.ints
        turned = op("Transpose", left, perm=[0, 1, 3, 2])
        eye = self._graph.constant(np.eye(heads.key_dim, dtype=np.float32))
        across = op("Sub", op("Mul", kept, eye), op("MatMul", turned, recall))
        maps = self._behind_zeros(across, 1)
        sums = op("Concat", state, op("MatMul", turned, write), axis=0)
        for step in range(self._steps):
            behind = self._shifted(sums, 1 << step)
            sums = op("Add", op("MatMul", maps, behind), sums)
            if step + 1 < self._steps:
                maps = op("MatMul", maps, self._shifted(maps, 1 << step))
        before = op("Slice", sums, ints(0), ints(-1), ints(0))
        return before, op("Slice", sums, ints(-1), ints(2**31 - 1), ints(0))

    def _shifted(self, x: ir.Value, by: int) -> ir.Value:
        """`x[i - by]` along the first of four axes, zero where there is none."""
        op, ints = self._graph.op, self._graph.ints
        return op("Slice", self._behind_zeros(x, by), ints(0), ints(-by), ints(0))

    def _behind_zeros(self, x: ir.Value, count: int) -> ir.Value:
        """`x` with `count` zeros before it along the first of four axes."""
        return self._graph.op("Pad", x, self._graph.ints(count, *[0] * 7))


def _below_diagonal(size: int) -> Array:
    """Ones in the lower left quarter of each diagonal block of `2 * size`."""
    index = np.arange(CHUNK)
    same = index[:, None] // (2 * size) == index // (2 * size)
    lower_left = (index[:, None] // size % 2 == 1) & (index // size % 2 == 0)
    ones: Array = (same & lower_left).astype(np.float32)
    return ones
