"""Weight matrices for the standard operators: FP16 or FP32, read and written in slices.

A projection is stored transposed, `[k, n]`, as `MatMul` wants it: one such matrix is held in memory
at a time. An embedding stays `[n, k]`, so that lookups and a tied head share its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from q35chat.errors import ExportError
from q35export.graph import Array, Graph
from q35export.matrix import Matrix

# Rows are read and converted in pieces of about this many values.
_PIECE_VALUES = 1 << 22


@dataclass(frozen=True, slots=True)
class RowMatrix:
    """`[n, k]`, looked up in and multiplied by."""

    graph: Graph
    value: ir.Value

    def multiply(self, x: ir.Value, bias: ir.Value | None = None) -> ir.Value:
        """`x @ w.T + bias` for `x` `[rows, k]`."""
        return self.graph.op("Gemm", x, self.value, bias, transB=1)

    def rows(self, ids: ir.Value) -> ir.Value:
        """`w[ids]`."""
        return self.graph.op("Gather", self.value, ids, axis=0)


def store_rows(graph: Graph, name: str, weights: Matrix, dtype: ir.DataType) -> RowMatrix:
    """Write `[n, k]` piece by piece; ExportError for a weight beyond the dtype's range."""

    def pieces() -> Iterator[Array]:
        for start, stop in _spans(weights):
            yield _converted(name, weights.rows(start, stop), dtype)

    return RowMatrix(graph, graph.streamed(name, (weights.n, weights.k), dtype, pieces))


def store_transposed(graph: Graph, name: str, weights: Matrix, dtype: ir.DataType) -> ir.Value:
    """Write `[k, n]`; ExportError for a weight beyond the dtype's range."""

    def pieces() -> Iterator[Array]:
        whole = np.empty((weights.k, weights.n), dtype.numpy())
        for start, stop in _spans(weights):
            whole[:, start:stop] = _converted(name, weights.rows(start, stop), dtype).T
        yield whole

    return graph.streamed(name, (weights.k, weights.n), dtype, pieces)


def _converted(name: str, values: Array, dtype: ir.DataType) -> Array:
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(values, dtype=dtype.numpy())
    if not np.isfinite(converted).all():
        raise ExportError(
            f"a weight of {name} is {np.abs(values).max():.4g}, beyond the range of FP16; "
            "export with --dtype fp32"
        )
    return converted


def _spans(weights: Matrix) -> Iterator[tuple[int, int]]:
    step = max(1, _PIECE_VALUES // weights.k)
    for start in range(0, weights.n, step):
        yield start, min(start + step, weights.n)
