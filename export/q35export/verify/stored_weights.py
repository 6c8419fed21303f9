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

INT8_ACTIVATIONS = 4  # MatMulNBits' accuracy_level: multiply in int8
_OPERANDS = {"MatMulNBits": (1, 2), "GatherBlockQuantized": (0, 2)}


@dataclass(frozen=True, slots=True, eq=False)
class StoredMatrix:
    """One block-quantised matrix `[N, K]` FP32. `activation_block` is the length of the blocks
    in which its input is rounded to int8, 0 where it is not."""

    name: str
    values: Float32
    activation_block: int


@dataclass(frozen=True, slots=True, eq=False)
class StoredWeights:
    """Quantised tensors by the checkpoint's names, and the block length of the int8 rounding of
    what they are multiplied with (absent where the input stays FP32)."""

    values: dict[str, Float32]
    activation_blocks: dict[str, int]


def stored_weights(bundle: Bundle, config: ModelConfig) -> StoredWeights:
    """Every quantised tensor of the bundle. Nothing is read for an FP32 bundle but its graphs."""
    found = StoredWeights({}, {})
    for graph in bundle.manifest.graphs:
        shapes = expected_tensors(config, graph)
        sources: dict[str, Origin] | None = None
        for matrix in quantised_matrices(bundle.graph_path(graph)):
            sources = origins(config, graph) if sources is None else sources
            _scatter(matrix, sources[matrix.name], shapes, found)
    return found


def quantised_matrices(path: Path) -> Iterator[StoredMatrix]:
    """Each block-quantised matrix of an ONNX file, once for every node that uses it.

    Nodes that share its bytes give it one name, that of the first.
    """
    names: dict[int, str] = {}
    for node in ir.load(path).graph:
        if node.op_type in _OPERANDS:
            packed = _initializer(node, _OPERANDS[node.op_type][0])
            assert isinstance(packed, ir.ExternalTensor)
            assert packed.offset is not None
            name = names.setdefault(packed.offset, packed.name.removesuffix(".rows"))
            yield _matrix(node, name, packed.numpy())


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


def _matrix(node: ir.Node, name: str, packed: npt.NDArray[np.uint8]) -> StoredMatrix:
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        raise ValueError(f"{node.name} has zero points, which no exporter of this project writes")
    scales = _initializer(node, _OPERANDS[node.op_type][1])
    values = dequantised(packed, scales.numpy(), bits=_int(node, "bits"))
    block = 0
    if node.op_type == "MatMulNBits":
        values = values[:, : _int(node, "K")]
        level = _int(node, "accuracy_level")
        block = _int(node, "block_size") if level == INT8_ACTIVATIONS else 0
    return StoredMatrix(name, values, block)


def _initializer(node: ir.Node, index: int) -> ir.TensorProtocol:
    value = node.inputs[index]
    assert value is not None
    assert value.const_value is not None
    return value.const_value


def _int(node: ir.Node, name: str) -> int:
    return node.attributes[name].as_int()


def _scatter(
    matrix: StoredMatrix, origin: Origin, shapes: dict[str, tuple[int, ...]], found: StoredWeights
) -> None:
    for number in np.unique(origin.tensor):
        name = origin.tensors[number]
        mine = origin.tensor == number
        width = int(np.prod(shapes[name][1:]))
        target = found.values.setdefault(name, np.zeros(shapes[name], np.float32))
        target.reshape(-1, width)[origin.row[mine]] = matrix.values[mine][:, :width]
        if matrix.activation_block:
            found.activation_blocks[name] = matrix.activation_block
