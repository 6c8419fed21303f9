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
from q35export.matrix import Matrix
from q35export.precision import (
    LOGIT_GROUP,
    REFINED_GROUPS,
    Quantisation,
    StoredAs,
    fine_name,
    left_over,
)
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

    def refined(self, _x: ir.Value, product: ir.Value) -> ir.Value:
        """`product`, which is exact."""
        return product

    def within(self, graph: Graph) -> FloatMatrix:
        """The same bytes for another graph over the same sink."""
        return FloatMatrix(graph, graph.shared(self.value))


@dataclass(frozen=True, slots=True)
class BlockMatrix:
    """`[n, k]` as packed codes `[n, blocks, block_bytes]` and scales `[n, blocks]`; `fine` is what
    they lack, where that is stored, too."""

    graph: Graph
    name: str
    n: int
    k: int
    fmt: BlockFormat
    codes: Stored
    scales: ir.Value
    fine: BlockMatrix | None = None

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
        """`w[ids]`, what is fine added."""
        shape = (self.n, self.fmt.blocks(self.k) * self.fmt.block_bytes())
        packed = self.graph.weight_at(f"{self.name}.rows", self.codes, shape, ir.DataType.UINT8)
        rows = self._as_wide(self._gathered(packed, ids, self.scales))
        return self.graph.op("Add", rows, self.fine.rows(ids)) if self.fine else rows

    def refined(self, x: ir.Value, product: ir.Value) -> ir.Value:
        """`product` `[1, N, n]`, which is `x @ w.T` of `x` `[1, N, k]`, with what is fine added in
        the groups of the largest values; as it is without."""
        if self.fine is None:
            return product
        graph, fine, ints = self.graph, self.fine, self.graph.ints
        count, width = self.n // LOGIT_GROUP, fine.fmt.blocks(self.k) * fine.fmt.block
        groups = graph.reshape(product, -1, count, LOGIT_GROUP)
        maxima = graph.op("ReduceMax", groups, ints(-1), keepdims=0)
        _, best = graph.ops(
            "TopK", maxima, ints(min(REFINED_GROUPS, count)), outputs=2, axis=-1, sorted=0
        )
        rows = graph.reshape(fine.grouped(best), 0, -1, width)
        change = graph.op("MatMul", self._as_wide(rows), graph.reshape(x, -1, self.k, 1))
        where = graph.op("Expand", graph.op("Unsqueeze", best, ints(-1)), ints(1, 1, LOGIT_GROUP))
        change = graph.reshape(change, 0, -1, LOGIT_GROUP)
        found = graph.op("ScatterElements", groups, where, change, axis=1, reduction="add")
        return graph.reshape(found, 1, -1, self.n)

    def grouped(self, ids: ir.Value) -> ir.Value:
        """The rows of groups of `LOGIT_GROUP` neighbours, one behind the other, padding and all."""
        count, per_row = self.n // LOGIT_GROUP, self.fmt.blocks(self.k)
        tensor = self.scales.const_value
        assert isinstance(tensor, ir.ExternalTensor)
        assert tensor.offset is not None
        assert tensor.length is not None
        parts = LOGIT_GROUP * per_row
        packed, scales = (
            self.graph.weight_at(f"{self.name}.groups{kind}", stored, (count, width), dtype)
            for kind, stored, width, dtype in (
                ("", self.codes, parts * self.fmt.block_bytes(), ir.DataType.UINT8),
                (".scales", Stored(tensor.offset, tensor.length), parts, ir.DataType.FLOAT),
            )
        )
        return self._gathered(packed, ids, scales)

    def within(self, graph: Graph) -> BlockMatrix:
        """The same bytes for another graph over the same sink."""
        fine = self.fine.within(graph) if self.fine else None
        return replace(self, graph=graph, scales=graph.shared(self.scales), fine=fine)

    def _gathered(self, packed: ir.Value, ids: ir.Value, scales: ir.Value) -> ir.Value:
        return self.graph.op(
            "GatherBlockQuantized",
            packed,
            ids,
            scales,
            domain=MS,
            bits=self.fmt.bits,
            block_size=self.fmt.block,
            gather_axis=0,
            quantize_axis=1,
        )

    def _as_wide(self, rows: ir.Value) -> ir.Value:
        """Rows without what the last block was padded with."""
        if self.fmt.blocks(self.k) * self.fmt.block == self.k:
            return rows
        ints = self.graph.ints
        return self.graph.op("Slice", rows, ints(0), ints(self.k), ints(-1))


CpuMatrix = FloatMatrix | BlockMatrix


def store(
    graph: Graph,
    name: str,
    weights: Matrix,
    quantised: Quantisation | None,
    decided: Mapping[str, StoredAs],
) -> CpuMatrix:
    """Read, convert and write a matrix piece by piece, as `decided` by its name or `quantised`."""
    if quantised is None:
        return _store_float(graph, name, weights)
    known = decided.get(graph.scoped(name)) or StoredAs(quantised.format_of(weights.n, weights.k))
    matrix = _store_blocks(graph, name, weights, known)
    if not quantised.refines(weights.n, known.fmt):
        return matrix
    beside = decided.get(graph.scoped(fine_name(name))) or StoredAs(known.fmt)
    fine = _store_blocks(graph, fine_name(name), left_over(weights, known), beside)
    return replace(matrix, fine=fine)


def _store_blocks(graph: Graph, name: str, weights: Matrix, known: StoredAs) -> BlockMatrix:
    codes, scales = _store_codes(graph, weights, known)
    shape = (weights.n, known.fmt.blocks(weights.k))
    value = graph.weight_at(f"{name}.scales", scales, shape, ir.DataType.FLOAT)
    return BlockMatrix(graph, name, weights.n, weights.k, known.fmt, codes, value)


def _store_codes(graph: Graph, weights: Matrix, known: StoredAs) -> tuple[Stored, Stored]:
    """Write a matrix's codes and scales `[n, blocks]`, unless they are there already."""
    if known.at and graph.sink.holds(known.at.path):
        return known.at.codes, known.at.scales
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

    codes = graph.sink.store(scales.size * fmt.block_bytes(), pieces)
    return codes, graph.sink.store(scales.nbytes, lambda: iter((scales,)))


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
        rows, blocks = one.n // count, fmt.blocks(one.k)
        packed = (count, rows, blocks * fmt.block_bytes())
        operands += (
            graph.weight_at(name, codes, packed, ir.DataType.UINT8),
            graph.weight_at(f"{name}.scales", scales, (count, rows, blocks), ir.DataType.FLOAT),
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
