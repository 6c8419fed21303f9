"""`IncreFlashAttention`: attention of one new token to a KV cache, in one node.

On 310P the kernel's tiler refuses grouped heads of width 256, so the cache is widened to one
key-value head a query head just before the node, and the node says so. The two belong together:
`expand_heads` and the `num_key_value_heads` of the node it feeds.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from q35chat.errors import ExportError
from q35export.ascend.ops.custom import Contract, Output, custom_node
from q35export.ascend.ops.delta_rule import Array
from q35export.graph import Graph
from q35export.targets.base import AttentionHeads

KIND = "IncreFlashAttention"
INPUTS = ("query", "key", "value", "atten_mask")
HIGH_PERFORMANCE = 1  # 0 is high precision, on 310P too
UNPAGED = 0


def node(
    graph: Graph,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    blocked: ir.Value | None,
    heads: AttentionHeads,
) -> ir.Value:
    """Add the node: `[1, NH, 1, HD]` FP16.

    Query is `[1, NH, 1, HD]`, key and value `[1, heads.kv, C, HD]`, all FP16; `blocked`
    `[1, 1, 1, C]` bool is True where a slot must not be read, None reads them all.
    """
    inputs = [query, key, value] if blocked is None else [query, key, value, blocked]
    output = Output("attention_out", ir.DataType.FLOAT16, (1, heads.query, 1, heads.dim))
    connected = tuple(range(len(inputs)))
    contract = Contract(KIND, INPUTS, ("atten_mask",), connected, (output,))
    attributes = (
        ir.AttrInt64("output_num", 1),
        ir.AttrInt64("num_heads", heads.query),
        ir.AttrInt64("num_key_value_heads", heads.kv),
        ir.AttrFloat32("scale_value", heads.scale),
        ir.AttrString("input_layout", "BNSD"),
        ir.AttrInt64("block_size", UNPAGED),
        ir.AttrInt64("inner_precise", HIGH_PERFORMANCE),
    )
    (out,) = custom_node(graph, contract, inputs, attributes)
    return out


def expand_heads(graph: Graph, cache: ir.Value, heads: AttentionHeads, capacity: int) -> ir.Value:
    """`[1, NKV, C, HD]` as `[1, NH, C, HD]`: query head h reads key-value head h // (NH / NKV).

    Raises ExportError when NH is not a multiple of NKV.
    """
    if heads.query % heads.kv:
        raise ExportError(
            f"{heads.query} attention heads cannot share {heads.kv} key-value heads evenly; "
            "the checkpoint's config.json is wrong"
        )
    if heads.query == heads.kv:
        return cache
    each = heads.query // heads.kv
    apart = graph.op("Unsqueeze", cache, graph.ints(2))
    wide = graph.op("Expand", apart, graph.ints(1, heads.kv, each, capacity, heads.dim))
    return graph.reshape(wide, 1, heads.query, capacity, heads.dim)


def reference(query: Array, key: Array, value: Array, blocked: Array | None, scale: float) -> Array:
    """What the kernel computes: arrays and result as at the node, softmax in FP32."""
    each = query.shape[1] // key.shape[1]
    wide_key, wide_value = (np.repeat(part.astype(np.float32), each, 1) for part in (key, value))
    scores = query.astype(np.float32) @ wide_key.swapaxes(2, 3) * np.float32(scale)
    if blocked is not None:
        scores = np.where(blocked, -np.inf, scores)
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    out: Array = (shares @ wide_value).astype(np.float16)
    return out
