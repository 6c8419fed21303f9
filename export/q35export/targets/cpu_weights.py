"""Weight matrices as the `cpu` target stores them: FP32, or blocks for `MatMulNBits`; those of
experts for `MoE` or `QMoE`.

A stored matrix can be multiplied by and looked up in; both use the same bytes, so a tied
embedding is in the file once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from q35chat.errors import CheckpointError, Option
from q35export.graph import Graph
from q35export.matrix import Float32, Matrix
from q35export.precision import Quantisation, StoredAs
from q35export.quantize import BlockFormat, quantize
from q35export.weights import Stored

MS = "com.microsoft"
GATE_UP, DOWN = "gate_up", "down"
"""Names of the experts' matrices within the scope of their block."""


@dataclass(frozen=True, slots=True)
class FloatMatrix:
    """`[n, k]` in FP32."""

    graph: Graph
    value: ir.Value

    def multiply(self, x: ir.Value, bias: ir.Value | None = None) -> ir.Value:
        """`x @ w.T + bias`."""
        product = self.graph.op("FusedMatMul", x, self.value, domain=MS, transB=1)
        return product if bias is None else self.graph.op("Add", product, bias)

    def rows(self, ids: ir.Value) -> ir.Value:
        """`w[ids]`."""
        return self.graph.op("Gather", self.value, ids, axis=0)

    def within(self, graph: Graph) -> FloatMatrix:
        """The same bytes for another graph over the same sink."""
        return FloatMatrix(graph, graph.shared(self.value))


@dataclass(frozen=True, slots=True)
class BlockMatrix:
    """`[n, k]` as packed codes `[n, blocks, block_bytes]` and scales `[n, blocks]`."""

    graph: Graph
    name: str
    n: int
    k: int
    fmt: BlockFormat
    codes: Stored
    scales: ir.Value

    def multiply(self, x: ir.Value, bias: ir.Value | None = None) -> ir.Value:
        """`x @ w.T + bias`."""
        shape = (self.n, self.fmt.blocks(self.k), self.fmt.block_bytes())
        packed = self.graph.weight_at(self.name, self.codes, shape, ir.DataType.UINT8)
        return self.graph.op(
            "MatMulNBits",
            x,
            packed,
            self.scales,
            None,
            None,
            bias,
            domain=MS,
            K=self.k,
            N=self.n,
            bits=self.fmt.bits,
            block_size=self.fmt.block,
            accuracy_level=self.fmt.accuracy_level,
        )

    def rows(self, ids: ir.Value) -> ir.Value:
        """`w[ids]`."""
        blocks = self.fmt.blocks(self.k)
        shape = (self.n, blocks * self.fmt.block_bytes())
        packed = self.graph.weight_at(f"{self.name}.rows", self.codes, shape, ir.DataType.UINT8)
        rows = self.graph.op(
            "GatherBlockQuantized",
            packed,
            ids,
            self.scales,
            domain=MS,
            bits=self.fmt.bits,
            block_size=self.fmt.block,
            gather_axis=0,
            quantize_axis=1,
        )
        if blocks * self.fmt.block == self.k:
            return rows
        ints = self.graph.ints
        return self.graph.op("Slice", rows, ints(0), ints(self.k), ints(-1))

    def within(self, graph: Graph) -> BlockMatrix:
        """The same bytes for another graph over the same sink."""
        return replace(self, graph=graph, scales=graph.shared(self.scales))


StoredMatrix = FloatMatrix | BlockMatrix


def store(
    graph: Graph,
    name: str,
    weights: Matrix,
    quantised: Quantisation | None,
    decided: Mapping[str, StoredAs],
) -> StoredMatrix:
    """Read, convert and write a matrix piece by piece, as `decided` by its name or `quantised`."""
    if quantised is None:
        return _store_float(graph, name, weights)
    known = decided.get(graph.scoped(name)) or StoredAs(quantised.format_of(weights.n, weights.k))
    codes, scales = _store_codes(graph, weights, known)
    value = graph.weight(f"{name}.scales", scales)
    return BlockMatrix(graph, name, weights.n, weights.k, known.fmt, codes, value)


def _store_codes(graph: Graph, weights: Matrix, known: StoredAs) -> tuple[Stored, Float32]:
    """Write a matrix's codes; its scales `[n, blocks]`, which are not written yet."""
    fmt, read = known.fmt, known.read
    scales = np.ones((weights.n, fmt.blocks(weights.k)), np.float32)

    def pieces() -> Iterator[npt.NDArray[Any]]:
        if read is not None:
            codes, scales[:] = read()
            yield codes
            return
        for start, stop in weights.spans():
            codes, scales[start:stop] = quantize(weights.rows(start, stop), fmt)
            yield codes

    return graph.sink.store(scales.size * fmt.block_bytes(), pieces), scales


def _store_float(graph: Graph, name: str, weights: Matrix) -> FloatMatrix:
    return FloatMatrix(graph, _streamed(graph, name, weights, (weights.n, weights.k)))


def _streamed(graph: Graph, name: str, weights: Matrix, shape: tuple[int, ...]) -> ir.Value:
    def pieces() -> Iterator[npt.NDArray[Any]]:
        for start, stop in weights.spans():
            yield np.ascontiguousarray(weights.rows(start, stop), dtype=np.float32)

    return graph.streamed(name, shape, ir.DataType.FLOAT, pieces)


@dataclass(frozen=True, slots=True)
class StoredExperts:
    """The operator that multiplies by all experts of a layer, its inputs behind the scores, and
    what else it is told."""

    kind: str
    operands: tuple[ir.Value | None, ...]
    attributes: Mapping[str, int]


def store_experts(
    graph: Graph,
    gate_up: Matrix,
    down: Matrix,
    count: int,
    quantised: Quantisation | None,
    decided: Mapping[str, StoredAs],
) -> StoredExperts:
    """Write the matrices of `count` experts, those of each kind as one tensor `[E, n, k]`.

    The layouts are those of `MoE` and `QMoE`; codes and scales of the latter are `MatMulNBits`'.
    Both matrices share the size of a block, which divides the rows of both.
    """
    matrices = {GATE_UP: gate_up, DOWN: down}
    if quantised is None:
        found = [
            _streamed(graph, name, one, (count, one.n // count, one.k))
            for name, one in matrices.items()
        ]
        return StoredExperts("MoE", (found[0], None, found[1]), {})
    fmt = experts_format(quantised, gate_up, down)
    operands: list[ir.Value | None] = []
    for name, one in matrices.items():
        known = decided.get(graph.scoped(name)) or StoredAs(fmt)
        codes, scales = _store_codes(graph, one, known)
        rows, bytes_of_row = one.n // count, one.k * fmt.bits // 8
        shape = (count, rows, bytes_of_row)
        operands += (
            graph.weight_at(name, codes, shape, ir.DataType.UINT8),
            graph.weight(f"{name}.scales", scales.reshape(count, rows, -1)),
            None,
        )
    return StoredExperts(
        "QMoE",
        tuple(operands),
        {
            "expert_weight_bits": fmt.bits,
            "block_size": fmt.block,
            "accuracy_level": fmt.accuracy_level,
            "weights_prepacked": 0,
        },
    )


def experts_format(quantised: Quantisation, gate_up: Matrix, down: Matrix) -> BlockFormat:
    """The one format of a layer's experts. Raises CheckpointError where no block divides the rows
    of both matrices."""
    wanted = quantised.format_of(gate_up.n, math.gcd(gate_up.k, down.k))
    if gate_up.k % wanted.block or down.k % wanted.block:
        raise CheckpointError(
            f"rows of {gate_up.k} and {down.k} weights of the experts are no multiples of "
            f"{wanted.block}, the block that shares a scale: use {Option.PRECISION} fp32"
        )
    return wanted
