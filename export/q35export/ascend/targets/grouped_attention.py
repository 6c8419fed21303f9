"""Softmax attention over grouped heads in standard operators, and how it keeps keys and values."""

from __future__ import annotations

import onnx_ir as ir

from q35export.ascend.targets.standard import StandardTarget
from q35export.targets.base import AttentionHeads, Values


def attend(
    target: StandardTarget,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    past: tuple[ir.Value, ir.Value] | None,
    slots: Values,
    heads: AttentionHeads,
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Causal attention, `[1, T, NH * HD]`, and the caches `[1, NKV, S, HD]` in `kv_dtype`.

    Query is `[1, T, NH, HD]`, key `[1, T, NKV, HD]`, value `[1, T, NKV * HD]`. `slots` is (mask,)
    for a cache that grows, or (mask, index, fresh) for one of C slots: mask `[1, 1, T, S]` FP32 is
    added to the scores; for each slot, index `[C]` int32 is the new row it would take and fresh
    `[1, NKV, C, HD]` bool whether it takes it.
    """
    split = target.graph.reshape(value, 1, -1, heads.kv, heads.dim)
    caches = []
    for number, rows in enumerate((key, split)):
        turned = target.graph.op("Transpose", rows, perm=[0, 2, 1, 3])
        turned = target.cast(turned, target.dtype, target.kv_dtype)
        caches.append(_placed(target, turned, None if past is None else past[number], slots))
    wide = [target.cast(cache, target.kv_dtype, target.dtype) for cache in caches]
    return _softmax_mix(target, query, wide[0], wide[1], slots[0], heads), caches[0], caches[1]


def _placed(
    target: StandardTarget, rows: ir.Value, past: ir.Value | None, slots: Values
) -> ir.Value:
    op = target.graph.op
    if past is None:
        return rows
    if len(slots) == 1:
        return op("Concat", past, rows, axis=2)
    _, index, fresh = slots
    return op("Where", fresh, op("Gather", rows, index, axis=2), past)


def _softmax_mix(
    target: StandardTarget,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    mask: ir.Value,
    heads: AttentionHeads,
) -> ir.Value:
    """The query heads of a group multiply one view of their keys; nothing is widened."""
    op, graph = target.graph.op, target.graph
    each = heads.query // heads.kv
    scaled = op("Mul", query, target.scalar(heads.scale, target.dtype))
    grouped = graph.reshape(scaled, -1, heads.kv, each, heads.dim)
    scores = op(
        "MatMul",
        op("Transpose", grouped, perm=[1, 2, 0, 3]),
        op("Transpose", key, perm=[1, 0, 3, 2]),
    )
    shares = target.softmax(scores, mask)
    mixed = op("MatMul", shares, graph.reshape(value, heads.kv, 1, -1, heads.dim))
    together = op("Transpose", mixed, perm=[2, 0, 1, 3])
    return graph.reshape(together, 1, -1, heads.query * heads.dim)
