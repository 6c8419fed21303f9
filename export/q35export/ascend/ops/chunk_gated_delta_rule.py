"""`ChunkGatedDeltaRule`: the gated delta rule over all tokens of a prefill, in one node.

Everything at the kernel's boundary is FP16, except the decay `g`: it runs through `exp`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from q35export.ascend.ops import delta_rule
from q35export.ascend.ops.custom import Contract, Output, custom_node
from q35export.ascend.ops.delta_rule import Array
from q35export.graph import Graph
from q35export.targets.base import DeltaHeads

KIND = "ChunkGatedDeltaRule"
INPUTS = ("query", "key", "value", "beta", "initial_state", "actual_seq_lengths", "g")
FLOAT16 = ir.DataType.FLOAT16
ONNX_FLOAT16 = 10


@dataclass(frozen=True, slots=True)
class Operands:
    """In the kernel's order: query, key `[T, NK, DK]`, value `[T, NV, DV]`, beta `[T, NV]`, state
    `[1, NV, DV, DK]`, all FP16; lengths `[1]` int32; g `[T, NV]` FP32."""

    query: ir.Value
    key: ir.Value
    value: ir.Value
    beta: ir.Value
    initial_state: ir.Value
    actual_seq_lengths: ir.Value
    g: ir.Value


def node(graph: Graph, operands: Operands, heads: DeltaHeads) -> tuple[ir.Value, ir.Value]:
    """Add the node: the output `[T, NV, DV]` and the final state `[1, NV, DV, DK]`, FP16."""
    outputs = (
        Output("out", FLOAT16, ("T", heads.value, heads.value_dim)),
        Output("final_state", FLOAT16, (1, heads.value, heads.value_dim, heads.key_dim)),
    )
    contract = Contract(KIND, INPUTS, ("g",), tuple(range(len(INPUTS))), outputs)
    attributes = (
        ir.AttrInt64("output_num", 2),
        ir.AttrFloat32("scale_value", heads.scale),
        ir.AttrInt64("dtype", ONNX_FLOAT16),
    )
    inputs = [getattr(operands, name) for name in INPUTS]
    out, final = custom_node(graph, contract, inputs, attributes)
    return out, final


def reference(
    query: Array,
    key: Array,
    value: Array,
    beta: Array,
    initial_state: Array,
    g: Array,
    scale: float,
) -> tuple[Array, Array]:
    """What the kernel computes for one sequence: arrays and results as at the node."""
    out, final = delta_rule.chunked(query, key, value, beta, initial_state[0], g, scale)
    return out.astype(np.float16), final[None].astype(np.float16)
