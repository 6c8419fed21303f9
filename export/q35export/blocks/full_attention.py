"""Gated softmax attention: per-head norms, partial rotary positions, grouped KV heads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from q35export.blocks.context import Context
from q35export.config import TextConfig
from q35export.matrix import stack, take_blocks
from q35export.targets.base import AttentionHeads, HeadNorms, Values


@dataclass(frozen=True, slots=True)
class Positions:
    """What every attention layer of a graph shares, in the target's own form.

    `angles` as `rotated_heads` wants them, `slots` as `attention` does.
    """

    angles: Values
    slots: Values


@dataclass(frozen=True, slots=True)
class KeyValue:
    """Key and value caches, `[1, NKV, slots, HD]` each."""

    key: ir.Value
    value: ir.Value


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
        ctx.zero_centred(f"{prefix}.q_norm.weight"),
        ctx.zero_centred(f"{prefix}.k_norm.weight"),
        config.eps,
    )
    joined = _projections(ctx, config, prefix, x)
    query, key, value, gate = target.rotated_heads(
        joined, norms, positions.angles, heads, config.rope
    )
    output, present_key, present_value = target.attention(
        query,
        key,
        value,
        None if past is None else (past.key, past.value),
        positions.slots,
        heads,
    )
    gated = ctx.graph.op("Mul", output, ctx.graph.op("Sigmoid", gate))
    out = target.project(
        gated,
        "out",
        ctx.matrix(f"{prefix}.o_proj.weight"),
        ctx.plan.decoder,
        _bias(ctx, config, f"{prefix}.o_proj.bias"),
    )
    return out, KeyValue(present_key, present_value)


def _projections(ctx: Context, config: TextConfig, prefix: str, x: ir.Value) -> ir.Value:
    """Query, key, value and gate from one multiplication, one behind the other.

    The checkpoint's `q_proj` holds each head's query rows followed by its gate rows.
    """
    q_proj = ctx.matrix(f"{prefix}.q_proj.weight")
    dim = config.head_dim
    weights = stack(
        take_blocks(q_proj, dim, 2, 0),
        ctx.matrix(f"{prefix}.k_proj.weight"),
        ctx.matrix(f"{prefix}.v_proj.weight"),
        take_blocks(q_proj, dim, 2, 1),
    )
    return ctx.target.project(
        x, "qkvg", weights, ctx.plan.decoder, _joined_bias(ctx, config, prefix)
    )


def _bias(ctx: Context, config: TextConfig, name: str) -> npt.NDArray[np.float32] | None:
    return ctx.vector(name) if config.attention_bias else None


def _joined_bias(ctx: Context, config: TextConfig, prefix: str) -> npt.NDArray[np.float32] | None:
    if not config.attention_bias:
        return None
    pairs = ctx.vector(f"{prefix}.q_proj.bias").reshape(-1, 2, config.head_dim)
    key, value = ctx.vector(f"{prefix}.k_proj.bias"), ctx.vector(f"{prefix}.v_proj.bias")
    return np.concatenate([pairs[:, 0].ravel(), key, value, pairs[:, 1].ravel()])
