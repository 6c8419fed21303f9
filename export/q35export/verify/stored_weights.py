"""The weights that a bundle really holds, read back from its graphs as the checkpoint's tensors.

Written against the operators' own contract (`MatMulNBits` in ONNX Runtime's
`docs/ContribOperators.md`), not against the exporter's packing, so that a mistake there shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from q35chat.bundle import Bundle
from q35export.config import ModelConfig
from q35export.matrix import Float32
from q35export.tensors import expected_tensors
from q35export.verify.provenance import Origin, origins

_OPERANDS = {"MatMulNBits": (1, 2), "GatherBlockQuantized": (0, 2)}
_ZERO_POINTS = 3


@dataclass(frozen=True, slots=True, eq=False)
class StoredTensor:
    """A tensor of the checkpoint as a graph multiplies by it, FP32, and the bits of its codes."""

    values: Float32
    bits: int


def stored_weights(bundle: Bundle, config: ModelConfig) -> dict[str, StoredTensor]:
    """Every quantised tensor of the bundle that transformers has, too, by the checkpoint's name;
    empty for FP32."""
    found: dict[str, StoredTensor] = {}
    for graph in (name for name in bundle.manifest.graphs if name != "mtp"):
        shapes = expected_tensors(config, graph)
        sources: dict[str, Origin] | None = None
        for name, matrix in quantised_matrices(bundle.graph_path(graph)):
            sources = origins(config, graph) if sources is None else sources
            _scatter(matrix, sources[name], shapes, found)
    return found


def quantised_matrices(path: Path) -> Iterator[tuple[str, StoredTensor]]:
    """Name and contents `[N, K]` of each block-quantised matrix of an ONNX file.

    Bytes that several nodes share are one matrix, named by the first.
    """
    seen: set[int] = set()
    for node in ir.load(path).graph:
        if node.op_type in _OPERANDS:
            packed = _initializer(node, _OPERANDS[node.op_type][0])
            assert isinstance(packed, ir.ExternalTensor)
            assert packed.offset is not None
            assert packed.name is not None
            if packed.offset not in seen:
                seen.add(packed.offset)
                yield packed.name.removesuffix(".rows"), _matrix(node, packed.numpy())


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


def _matrix(node: ir.Node, packed: npt.NDArray[np.uint8]) -> StoredTensor:
    if len(node.inputs) > _ZERO_POINTS and node.inputs[_ZERO_POINTS] is not None:
        raise ValueError(f"{node.name} has zero points, which no exporter of this project writes")
    scales = _initializer(node, _OPERANDS[node.op_type][1])
    bits = _int(node, "bits")
    values = dequantised(packed, scales.numpy(), bits=bits)
    columns = _int(node, "K") if node.op_type == "MatMulNBits" else None
    return StoredTensor(values[:, :columns], bits)


def _initializer(node: ir.Node, index: int) -> ir.TensorProtocol:
    value = node.inputs[index]
    assert value is not None
    assert value.const_value is not None
    return value.const_value


def _int(node: ir.Node, name: str) -> int:
    return node.attributes[name].as_int()


def _scatter(
    matrix: StoredTensor,
    origin: Origin,
    shapes: dict[str, tuple[int, ...]],
    found: dict[str, StoredTensor],
) -> None:
    for number in np.unique(origin.tensor):
        name = origin.tensors[number]
        mine = origin.tensor == number
        width = int(np.prod(shapes[name][1:]))
        empty = StoredTensor(np.zeros(shapes[name], np.float32), matrix.bits)
        target = found.setdefault(name, empty).values.reshape(-1, width)
        target[origin.row[mine]] = matrix.values[mine][:, :width]
