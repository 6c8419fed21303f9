"""`Scatter`: writes one token's rows into a KV cache, in place (the output bears the input's name).

The kernel updates as many slots as `indices` has entries, along the axis of tokens.
"""

from __future__ import annotations

import onnx_ir as ir

from q35export.ascend.ops.custom import Contract, Output, custom_node
from q35export.ascend.ops.delta_rule import Array
from q35export.graph import Graph

KIND = "Scatter"
INPUTS = ("var", "indices", "updates")
TOKEN_AXIS = 2


def node(
    graph: Graph,
    cache: ir.Value,
    slot: ir.Value,
    rows: ir.Value,
    *,
    cache_shape: tuple[int, ...],
) -> ir.Value:
    """Add the node: `cache` `[1, NKV, C, HD]` with `rows` `[1, NKV, 1, HD]` at `slot`.

    `slot` is `[1]` int64; cache and rows are FP16.
    """
    output = Output("var", ir.DataType.FLOAT16, cache_shape)
    contract = Contract(KIND, INPUTS, (), (0, 1, 2), (output,))
    attributes = (ir.AttrString("reduce", "update"), ir.AttrInt64("axis", TOKEN_AXIS))
    (written,) = custom_node(graph, contract, (cache, slot, rows), attributes)
    return written


def reference(var: Array, indices: Array, updates: Array) -> Array:
    """What the kernel computes: arrays and result as at the node."""
    written = var.copy()
    written[:, :, indices] = updates
    return written
