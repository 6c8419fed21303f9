"""Gated softmax attention: per-head norms, partial rotary positions, grouped KV heads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from q35export.blocks.context import Context
from q35export.config import TextConfig
from q35export.matrix import stack, take_blocks
from q35export.targets.base import AttentionHeads, AttentionOperands, HeadNorms, Values


@dataclass(frozen=True, slots=True)
class Positions:
    """What every attention layer of a graph shares, in the target's own form.

    `angles` as `rotated_heads` wants them, `slots` as `attention` does.
    """

    angles: Values
    slots: Values


@dataclass(frozen=True, slots=True)
class KeyValue:
    """Key and value caches, `[1, NKV, slots, HD]` each, and `rows` of them as the target reads them
    beside, opaque."""

    key: ir.Value
    value: ir.Value
    rows: Values = ()


def full_attention(
    ctx: Context,
    config: TextConfig,
    prefix: str,
    x: ir.Value,
    past: KeyValue | None,
    positions: Positions,
) -> tuple[ir.Value, KeyValue]:
    """One attention mixer over normalised `x` `[1, T, H]`; `past` None is an empty cache."""
    target = ctx.target
    heads = AttentionHeads(config.num_heads, config.num_kv_heads, config.head_dim)
    norms = HeadNorms(
        ctx.zero_centred(f"{prefix}.q_norm.weight", config.head_dim),
        ctx.zero_centred(f"{prefix}.k_norm.weight", config.head_dim),
        config.eps,
    )
    joined = _projections(ctx, config, prefix, x)
    query, key, value, gate = target.rotated_heads(
        joined, norms, positions.angles, heads, config.rope
    )
    caches = None if past is None else (past.key, past.value, *past.rows)
    given = AttentionOperands(query, key, value, caches, positions.slots)
    output, present_key, present_value = target.attention(given, heads)
    gated = ctx.graph.op("Mul", output, ctx.graph.op("Sigmoid", gate))
    hidden = config.hidden_size
    weights = ctx.matrix(f"{prefix}.o_proj.weight", hidden, heads.query * heads.dim)
    bias = ctx.vector(f"{prefix}.o_proj.bias", hidden) if config.attention_bias else None
    out = target.project(gated, "out", weights, ctx.plan.writers, bias)
    return out, KeyValue(present_key, present_value)


def _projections(ctx: Context, config: TextConfig, prefix: str, x: ir.Value) -> ir.Value:
    """Query, key, value and gate from one multiplication, one behind the other.

    The checkpoint's `q_proj` holds each head's query rows followed by its gate rows.
    """
    dim, hidden = config.head_dim, config.hidden_size
    wide, narrow = 2 * config.num_heads * dim, config.num_kv_heads * dim
    q_proj = ctx.matrix(f"{prefix}.q_proj.weight", wide, hidden)
    weights = stack(
        take_blocks(q_proj, dim, 2, 0),
        ctx.matrix(f"{prefix}.k_proj.weight", narrow, hidden),
        ctx.matrix(f"{prefix}.v_proj.weight", narrow, hidden),
        take_blocks(q_proj, dim, 2, 1),
    )
    bias = None
    if config.attention_bias:
        pairs = ctx.vector(f"{prefix}.q_proj.bias", wide).reshape(-1, 2, dim)
        key = ctx.vector(f"{prefix}.k_proj.bias", narrow)
        value = ctx.vector(f"{prefix}.v_proj.bias", narrow)
        bias = np.concatenate([pairs[:, 0].ravel(), key, value, pairs[:, 1].ravel()])
    return ctx.target.project(x, "qkvg", weights, ctx.plan.decoder, bias)
