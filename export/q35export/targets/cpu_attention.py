"""Attention of one token to many: the query heads that share a KV head read its rows once.

GroupQueryAttention reads them once for each query head. Here the keys of a KV head are the left
matrix of a product, which ONNX Runtime multiplies where they lie, and the values are multiplied
block by block, so that all but the first query head find a block in the processor's cache.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from q35export.graph import Graph
from q35export.targets.base import AttentionHeads, AttentionOperands, Values
from q35export.targets.cpu_weights import MS

_BLOCK, _LEAST_BLOCK = 256, 16


class FilledRows(NamedTuple):
    """What all layers need for one token behind rows: `are_read` `[1]` bool tells that it is one
    and that there are rows, `lit` `[S]` bool which of them lie before it, `place` `[NKV, 3]` int64
    where its own go in a cache."""

    are_read: ir.Value
    lit: ir.Value
    place: ir.Value


def block_of(capacity: int, query_heads: int, kv_heads: int) -> int:
    """Rows of a block, which divides the `capacity`; 0 where rows are not read in blocks, for there
    is none of a good size, or no two query heads share a KV head.

    Blocks of 256 rows of 256 values fit a core's own cache.
    """
    block = math.gcd(capacity, _BLOCK)
    return block if block >= _LEAST_BLOCK and query_heads > kv_heads else 0


def filled_rows(
    graph: Graph, ids: ir.Value, last: ir.Value, rows: ir.Value, kv_heads: int
) -> FilledRows:
    """For tokens `ids` `[1, T]`, `last` `[1]` int32 the slot of the last of them, and the `rows`
    `[S, HD]` of any KV head."""
    op = graph.op
    with graph.scope("filled"):
        count = op("Shape", rows, start=0, end=1)
        slot = op("Cast", last, to=ir.DataType.INT64)
        none = graph.ints(0)
        single = op("Equal", op("Shape", ids, start=1, end=2), graph.ints(1))
        slots = op("Range", graph.scalar(0), op("Squeeze", count, none), graph.scalar(1))
        heads = np.zeros((kv_heads, 3), np.int64)
        heads[:, 1] = np.arange(kv_heads)
        place = op("Add", graph.constant(heads), op("Mul", slot, graph.ints(0, 0, 1)))
        are_read = op("And", single, op("Greater", count, none))
        return FilledRows(are_read, op("Less", slots, slot), place)


def one_row(
    graph: Graph, given: AttentionOperands, heads: AttentionHeads, filled: FilledRows
) -> Values:
    """The output `[1, 1, NH * HD]` and both caches, written in place, for one token.

    Behind the caches `given.past` has their rows `[S, HD]`: a KV head after the other those of the
    keys, then of the values.
    """
    op, shape = graph.op, graph.reshape
    kv, dim, group = heads.kv, heads.dim, heads.query // heads.kv
    assert given.past is not None
    caches, keys, values = given.past[:2], given.past[2 : 2 + kv], given.past[2 + kv :]
    slots = caches[0].shape
    assert slots is not None
    block = block_of(slots.numpy()[2], heads.query, kv)
    query = shape(given.query, heads.query, dim)
    new_key, new_value = shape(given.key, kv, dim), shape(given.value, kv, dim)
    presents = tuple(
        op("ScatterND", cache, filled.place, new)
        for cache, new in zip(caches, (new_key, new_value), strict=True)
    )

    def scores(left: ir.Value, right: ir.Value) -> ir.Value:
        return op("FusedMatMul", left, right, domain=MS, transB=1, alpha=heads.scale)

    queries = graph.ops("Split", query, outputs=kv, axis=0, num_outputs=kv)
    found = [scores(key, part) for key, part in zip(keys, queries, strict=True)]
    before = op("Transpose", op("Concat", *found, axis=1), perm=[1, 0])
    lowest = graph.constant(np.array(-np.inf, np.float32))
    before = op("Where", filled.lit, before, lowest)
    own = scores(shape(query, kv, group, dim), shape(new_key, kv, 1, dim))
    both = op("Concat", before, shape(own, heads.query, 1), axis=1)
    weights = op("Softmax", both, axis=-1)

    end = graph.ints(-1)
    blocks = shape(op("Slice", weights, graph.ints(0), end, end), heads.query, -1, 1, block)
    blocks = op("Transpose", blocks, perm=[1, 0, 2, 3])
    parts = graph.ops("Split", blocks, outputs=kv, axis=1, num_outputs=kv)
    sums = [
        op("MatMul", part, shape(value, -1, 1, block, dim))
        for part, value in zip(parts, values, strict=True)
    ]
    total = op("ReduceSum", op("Concat", *sums, axis=1), graph.ints(0), keepdims=0)
    last = op("Slice", weights, end, graph.ints(2**31 - 1), end)
    own = op("Mul", shape(last, kv, group, 1), shape(new_value, kv, 1, dim))
    output = op("Add", shape(total, kv, group, dim), own)
    return shape(output, 1, 1, heads.query * dim), *presents
