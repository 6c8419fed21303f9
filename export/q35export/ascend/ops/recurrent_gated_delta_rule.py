"""`RecurrentGatedDeltaRule`: one step of the gated delta rule, its state updated in place.

The output named like the input `state` is what says "in place". `gk`, a decay for each key
channel, has no producer in this model: its name stays in the list and its index is left out.
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

KIND = "RecurrentGatedDeltaRule"
INPUTS = (
    "query",
    "key",
    "value",
    "beta",
    "state",
    "actual_seq_lengths",
    "ssm_state_indices",
    "g",
    "gk",
    "num_accepted_tokens",
)
OPTIONAL = ("g", "gk", "num_accepted_tokens")
CONNECTED = tuple(index for index, name in enumerate(INPUTS) if name != "gk")
FLOAT16 = ir.DataType.FLOAT16
ONNX_FLOAT16 = 10
MINDSPORE_FLOAT16 = 42


@dataclass(frozen=True, slots=True)
class Operands:
    """Query, key `[1, NK, DK]`, value `[1, NV, DV]`, beta `[1, NV]`, state `[1, NV, DV, DK]`, all
    FP16; g `[1, NV]` FP32."""

    query: ir.Value
    key: ir.Value
    value: ir.Value
    beta: ir.Value
    state: ir.Value
    g: ir.Value


def node(graph: Graph, operands: Operands, heads: DeltaHeads) -> tuple[ir.Value, ir.Value]:
    """Add the node: the output `[1, NV, DV]` and the new state `[1, NV, DV, DK]`, FP16.

    Lengths, state index and accepted tokens are constants: one sequence, its first and only state,
    one token. An index computed in the graph would become OneHot, which cannot be mapped.
    """
    rows, dims = heads.value, (heads.value_dim, heads.key_dim)
    outputs = (
        Output("out", FLOAT16, (1, rows, heads.value_dim)),
        Output("state", FLOAT16, (1, rows, *dims)),
    )
    contract = Contract(KIND, INPUTS, OPTIONAL, CONNECTED, outputs)
    attributes = (
        ir.AttrInt64("output_num", 2),
        ir.AttrInt64s("output_types", [MINDSPORE_FLOAT16, MINDSPORE_FLOAT16]),
        ir.AttrString("outputs_shape", f"3,-1,{rows},{dims[0]},4,-1,{rows},{dims[0]},{dims[1]},"),
        ir.AttrFloat32("scale_value", heads.scale),
        ir.AttrInt64("dtype", ONNX_FLOAT16),
    )
    one, zero = (graph.constant(np.array([number], np.int32)) for number in (1, 0))
    ops = operands
    inputs = (ops.query, ops.key, ops.value, ops.beta, ops.state, one, zero, ops.g, one)
    out, state = custom_node(graph, contract, inputs, attributes)
    return out, state


def reference(
    query: Array, key: Array, value: Array, beta: Array, state: Array, g: Array, scale: float
) -> tuple[Array, Array]:
    """What the kernel computes for one token: arrays and results as at the node."""
    out, final = delta_rule.chunked(query, key, value, beta, state[0], g, scale)
    return out.astype(np.float16), final[None].astype(np.float16)
