"""The weights that a bundle really holds, read back from its graphs as the checkpoint's tensors.

Written against the operators' own contracts (`MatMulNBits` and `QMoE` in ONNX Runtime's
`docs/ContribOperators.md`), not against the exporter's packing, so that a mistake there shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from q35chat.bundle.bundle import Bundle
from q35export.calibration.int8_steps import LM_HEAD
from q35export.calibration.rotation import turned_back
from q35export.config import ModelConfig
from q35export.int8_rows import decoded, unpacked
from q35export.inventory import Inventory, build_unquantised, expected_tensors
from q35export.matrix import HEAD, Float32, Shape
from q35export.verify.metrics import PIECE_VALUES
from q35export.weights import Pieces, Stored, WeightSink

_OPERANDS = {
    "MatMulNBits": ((1, 2),),
    "GatherBlockQuantized": ((0, 2),),
    "QMoE": ((2, 3), (5, 6)),
}
_ZERO_POINTS = {"MatMulNBits": (3,), "GatherBlockQuantized": (3,), "QMoE": (11, 12)}
_EXPERTS = ".mlp.experts."
_FINE = ".fine"

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class StoredTensor:
    """A tensor of the checkpoint as a graph multiplies by it, FP32, and the bits of its codes."""

    values: Float32
    bits: int


@dataclass(frozen=True, slots=True, eq=False)
class QuantisedMatrix:
    """A block-quantised matrix of a graph, or those of all experts one below the other, unread:
    codes, scales of `n` rows, bits of a code and width `k` of a row, None where the graph does not
    tell it; and what is `fine`, where the graph adds that."""

    codes: ir.ExternalTensor
    scales: ir.TensorProtocol
    n: int
    bits: int
    k: int | None
    fine: QuantisedMatrix | None = None

    def pieces(self) -> Iterator[tuple[int, Float32]]:
        """First row and FP32 contents of some rows at a time, in order."""
        width = self.codes.size // self.n * 8 // self.bits
        step = max(1, PIECE_VALUES // width)
        for start in range(0, self.n, step):
            yield start, self._rows(slice(start, start + step))

    def _rows(self, rows: slice) -> Float32:
        codes, scales = (one.numpy().reshape(self.n, -1)[rows] for one in (self.codes, self.scales))
        values = dequantised(codes, scales, bits=self.bits)[:, : self.k]
        return values + self.fine._rows(rows)[:, : self.k] if self.fine else values


@dataclass(frozen=True, slots=True, eq=False)
class CodedRows:
    """A matrix that an NPU multiplies in int8, unread: codes `[n, k]`, what products of them are
    worth `[n]`, and the step of its inputs."""

    codes: ir.ExternalTensor
    scales: ir.TensorProtocol
    step: float
    bits: int = 8

    def pieces(self) -> Iterator[tuple[int, Float32]]:
        """As `QuantisedMatrix.pieces`."""
        codes, scales = self.codes.numpy(), unpacked(self.scales.numpy())
        some = max(1, PIECE_VALUES // codes.shape[1])
        for start in range(0, len(codes), some):
            rows = slice(start, start + some)
            yield start, decoded(codes[rows], scales[rows], self.step)


def stored_weights(bundle: Bundle, config: ModelConfig) -> Iterator[tuple[str, StoredTensor]]:
    """Every quantised tensor of the bundle that transformers has, too, by the checkpoint's name;
    none for FP32. Those for a turned residual stream are turned back; the norms stay folded. A head
    in int8 is one of its own, where the checkpoint's is tied, too.

    One stored matrix is in memory at a time: each tensor comes whole from one. ValueError for a
    graph in which one does not. Of an NPU's prefill and decode, which store the same, one is read.
    """
    for graph in (name for name in bundle.manifest.graphs if name not in {"mtp", "prefill"}):
        shapes = expected_tensors(config, graph)
        sources: dict[str, Origin] | None = None
        for name, matrix in quantised_matrices(bundle.graph_path(graph)):
            sources = origins(config, graph) if sources is None else sources
            if name == LM_HEAD and name not in sources:
                values = np.concatenate([rows for _, rows in matrix.pieces()])
                found = iter([(HEAD, StoredTensor(values, matrix.bits))])
            else:
                found = _tensors(name, matrix, sources[name], shapes)
            for tensor, stored in found:
                values = stored.values
                if is_turned(bundle) and graph in {"text", "decode"}:
                    values = turned_back(tensor, values)
                yield tensor, replace(stored, values=values)


def is_turned(bundle: Bundle) -> bool:
    """Whether the decoder of the bundle has a turned residual stream."""
    return bundle.manifest.measured.get("rounding", "nearest") != "nearest"


def quantised_matrices(path: Path) -> Iterator[tuple[str, QuantisedMatrix | CodedRows]]:
    """Name and contents of each quantised matrix of an ONNX file, fine codes with the matrix that
    they belong to.

    Bytes that several nodes share are one matrix, named by the first.
    """
    found = dict(_apart(path))
    for name, one in found.items():
        if isinstance(one, QuantisedMatrix) and not name.endswith(_FINE):
            fine = found.get(f"{name}{_FINE}")
            if isinstance(fine, QuantisedMatrix):  # its rows are seen in groups, perhaps
                yield name, replace(one, fine=replace(fine, n=one.n))
            else:
                yield name, one
        elif isinstance(one, CodedRows):
            yield name, one


def _apart(path: Path) -> Iterator[tuple[str, QuantisedMatrix | CodedRows]]:
    seen: set[int] = set()
    for node in ir.load(path).graph:
        if node.op_type == "Custom" and node.attributes.get_string("type") == "QuantBatchMatmul":
            rows = _coded_rows(node)
            yield str(rows.codes.name), rows
        for codes, scales in _OPERANDS.get(node.op_type, ()):
            packed = _initializer(node, codes)
            assert isinstance(packed, ir.ExternalTensor)
            assert packed.offset is not None
            assert packed.name is not None
            if packed.offset not in seen:
                seen.add(packed.offset)
                name = packed.name.removesuffix(".rows").removesuffix(".groups")
                yield name, _matrix(node, packed, scales)


def _coded_rows(node: ir.Node) -> CodedRows:
    codes, rounded = _initializer(node, 1), node.inputs[0]
    assert isinstance(codes, ir.ExternalTensor)
    assert rounded is not None
    rounding = rounded.producer()
    assert rounding is not None
    step = 1 / rounding.attributes["scale"].as_float()
    return CodedRows(codes, _initializer(node, 2), step)


def dequantised(packed: npt.NDArray[np.uint8], scales: Float32, *, bits: int) -> Float32:
    """`(code - 2**(bits - 1)) * scale`, `[rows, K]`, FP32, K rounded up to whole blocks.

    `packed` holds the codes in order, two to a byte at 4 bits with the first in the low half;
    `scales` has one value a block.
    """
    rows = len(packed)
    codes = packed.reshape(rows, -1)
    if bits == 4:
        codes = np.stack([codes & 15, codes >> 4], axis=-1).reshape(rows, -1)
    per_row = scales.reshape(rows, -1, 1).astype(np.float32)
    blocks = codes.reshape(rows, per_row.shape[1], -1).astype(np.float32)
    values: Float32 = (blocks - np.float32(1 << (bits - 1))) * per_row
    return values.reshape(rows, -1)


def _matrix(node: ir.Node, packed: ir.ExternalTensor, scales: int) -> QuantisedMatrix:
    inputs = dict(enumerate(node.inputs))
    if any(inputs.get(place) is not None for place in _ZERO_POINTS[node.op_type]):
        raise ValueError(f"{node.name} has zero points, which no exporter of this project writes")
    columns = _int(node, "K") if node.op_type == "MatMulNBits" else None
    of_experts = node.op_type == "QMoE"
    rows = packed.shape.numpy()[: 2 if of_experts else 1]
    bits = _int(node, "expert_weight_bits" if of_experts else "bits")
    return QuantisedMatrix(packed, _initializer(node, scales), math.prod(rows), bits, columns)


def _initializer(node: ir.Node, index: int) -> ir.TensorProtocol:
    value = node.inputs[index]
    assert value is not None
    assert value.const_value is not None
    return value.const_value


def _int(node: ir.Node, name: str) -> int:
    return node.attributes[name].as_int()


def _tensors(
    matrix: str, stored: QuantisedMatrix | CodedRows, origin: Origin, shapes: Mapping[str, Shape]
) -> Iterator[tuple[str, StoredTensor]]:
    """The tensors whose rows a stored matrix holds."""
    tensors = {number: origin.tensors[number] for number in np.unique(origin.tensor).tolist()}
    for number, name in tensors.items():
        rows = np.unique(origin.row[origin.tensor == number])
        if len(rows) != _flat(name, shapes[name])[0]:
            count, _ = _flat(name, shapes[name])
            raise ValueError(f"{matrix} holds {len(rows)} of {count} rows of {name}")
    found = {
        number: np.zeros(_flat(name, shapes[name]), np.float32) for number, name in tensors.items()
    }
    for start, values in stored.pieces():
        piece = slice(start, start + len(values))
        numbers, rows = origin.tensor[piece], origin.row[piece]
        for number in np.unique(numbers).tolist():
            flat, mine = found[number], numbers == number
            flat[rows[mine]] = values[mine, : flat.shape[1]]
    for number, name in tensors.items():
        yield name, StoredTensor(found.pop(number).reshape(shapes[name]), stored.bits)


def _flat(name: str, shape: Shape) -> tuple[int, int]:
    """Rows and width of a tensor as a matrix; those of experts lie one below the other."""
    outer = 2 if _EXPERTS in name else 1
    return math.prod(shape[:outer]), math.prod(shape[outer:])


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """For each row of a stored matrix: the checkpoint's tensor and the row in it."""

    tensors: tuple[str, ...]
    tensor: Int64
    row: Int64


def origins(config: ModelConfig, graph: str) -> dict[str, Origin]:
    """The origin of every matrix of the graph "text" or "vision", by initializer name.

    The exporter itself is asked: it builds the graph once more over a source whose rows carry their
    tensor's number and their own, so that stacking and reordering need no second description here.
    """
    sink, source = _TagReader(), _TagSource()
    build_unquantised(config, graph, source, sink)
    names = tuple(source.shapes)
    return {name: Origin(names, tags[:, 0], tags[:, 1]) for name, tags in sink.matrices.items()}


class _TagSource(Inventory):
    """Rows begin with their tensor's number and their own; all else is zero."""

    def rows(self, name: str, start: int, stop: int) -> Float32:
        rows = super().rows(name, start, stop)
        flat = rows.reshape(_flat(name, rows.shape))
        first = start * len(flat) // max(1, stop - start)
        flat[:, 0] = tuple(self.shapes).index(name)
        flat[:, 1] = np.arange(first, first + len(flat))
        return rows


class _TagReader(WeightSink):
    """A sink that keeps the first two columns of every matrix and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.matrices: dict[str, Int64] = {}
        self._stored: list[Int64 | None] = []

    def store(self, length: int, pieces: Pieces) -> Stored:
        tags = [piece[:, :2].astype(np.int64) for piece in pieces() if piece.ndim == 2]
        self._stored.append(np.concatenate(tags) if tags else None)
        return Stored(len(self._stored) - 1, length)

    def tensor(
        self, name: str, stored: Stored, shape: tuple[int, ...], dtype: ir.DataType
    ) -> ir.ExternalTensor:
        tags = self._stored[stored.offset]
        if tags is not None:
            self.matrices[name] = tags
        return ir.ExternalTensor("none", 0, 0, dtype, shape=ir.Shape(shape), name=name)
