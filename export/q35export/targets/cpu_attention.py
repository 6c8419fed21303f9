"""Attention of one token to many: the query heads that share a KV head read its rows once.

GroupQueryAttention reads them once for each query head. Here the keys of a KV head are the left
matrix of a product, which ONNX Runtime multiplies where they lie, and the values are multiplied
part by part, so that all but the first query head find a part in the processor's cache. A node
takes as long as reading forty rows, so there are as few as can be.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from q35export.graph import Graph
from q35export.targets.base import AttentionHeads, AttentionOperands, Values

_PART, _LEAST_PART = 512, 128


class FilledRows(NamedTuple):
    """What all layers need for one token behind rows.

    `are_read` `[1]` bool tells that it is one and that there are rows. `shade` `[S, 1]` is 0 for
    rows up to its own and -inf for others, `place` `[NKV, 1, 3]` int64 where its own go in a cache,
    `weights` `[5]` int64 the shape of a layer's attention weights in parts.
    """

    are_read: ir.Value
    shade: ir.Value
    place: ir.Value
    weights: ir.Value


def part_of(capacity: int, query_heads: int, kv_heads: int) -> int:
    """Rows of a part at most, which divides the `capacity`; 0 where rows are not read in parts, for
    there is none of a good size, or no two query heads share a KV head.

    A part of 512 rows of 256 values has half a MB, which a core's own cache holds.
    """
    part = math.gcd(capacity, _PART)
    return part if part >= _LEAST_PART and query_heads > kv_heads else 0


def filled_rows(
    graph: Graph, ids: ir.Value, last: ir.Value, keys: ir.Value, values: ir.Value, kv_heads: int
) -> FilledRows:
    """For tokens `ids` `[1, T]`, `last` `[1]` int32 the slot of the last of them, and the `keys`
    `[S, HD]` and `values` `[B, 1, S / B, HD]` of any KV head."""
    op, ints = graph.op, graph.ints
    with graph.scope("filled"):
        count = op("Shape", keys, start=0, end=1)
        single = op("Equal", op("Shape", ids, start=1, end=2), ints(1))
        are_read = op("And", single, op("Greater", count, ints(0)))
        slot = op("Cast", last, to=ir.DataType.INT64)
        slots = op("Range", graph.scalar(0), op("Squeeze", count, ints(0)), graph.scalar(1))
        zero, lowest = (graph.constant(np.array(value, np.float32)) for value in (0, -np.inf))
        shade = op("Where", op("LessOrEqual", slots, slot), zero, lowest)
        heads = np.zeros((kv_heads, 1, 3), np.int64)
        heads[:, 0, 1] = np.arange(kv_heads)
        place = op("Add", graph.constant(heads), op("Mul", slot, ints(0, 0, 1)))
        parts, rows = (op("Shape", values, start=axis, end=axis + 1) for axis in (0, 2))
        weights = op("Concat", ints(kv_heads, -1), parts, ints(1), rows, axis=0)
        return FilledRows(are_read, op("Unsqueeze", shade, ints(1)), place, weights)


def one_row(
    graph: Graph, given: AttentionOperands, heads: AttentionHeads, filled: FilledRows
) -> Values:
    """The output `[1, 1, NH * HD]` and both caches, written in place, for one token.

    Behind the caches `given.past` has their rows: a KV head after the other the keys, then the
    values. The token's own are among them once it is written. That they are the same memory is
    nothing the runtime knows, so the queries wait for both caches: they get their shape from them.
    """
    op = graph.op
    kv, dim = heads.kv, heads.dim
    assert given.past is not None
    keys, values = given.past[2 : 2 + kv], given.past[2 + kv :]
    presents = tuple(
        op("ScatterND", cache, filled.place, graph.reshape(new, kv, 1, dim))
        for cache, new in zip(given.past[:2], (given.key, given.value), strict=True)
    )
    sizes = (op("Size", present) for present in presents)
    query = op("Reshape", given.query, op("Min", *sizes, graph.ints(heads.query, dim)))

    queries = graph.ops("Split", query, outputs=kv, axis=0, num_outputs=kv)
    found = [
        op("Gemm", key, part, filled.shade, transB=1, alpha=heads.scale)
        for key, part in zip(keys, queries, strict=True)
    ]
    weights = op("Softmax", op("Transpose", op("Concat", *found, axis=1), perm=[1, 0]), axis=-1)

    weights = op("Transpose", op("Reshape", weights, filled.weights), perm=[0, 2, 1, 3, 4])
    parts = graph.ops("Split", weights, outputs=kv, axis=0, num_outputs=kv)
    sums = [op("MatMul", part, value) for part, value in zip(parts, values, strict=True)]
    total = op("ReduceSum", op("Concat", *sums, axis=0), graph.ints(1, 3), keepdims=0)
    return graph.reshape(total, 1, 1, heads.query * dim), *presents
