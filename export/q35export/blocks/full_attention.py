"""Gated softmax attention: per-head norms, partial rotary positions, grouped KV heads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from q35export.blocks.context import Context
from q35export.config import TextConfig
from q35export.matrix import stack, take_blocks


@dataclass(frozen=True, slots=True)
class Positions:
    """What every attention layer of a graph shares.

    `ids` `[3, 1, T]`; `tables` cosines and sines `[C, dim / 2]`; `lengths` as `attention` of the
    target wants them.
    """

    ids: ir.Value
    tables: tuple[ir.Value, ir.Value]
    lengths: tuple[ir.Value, ir.Value]


@dataclass(frozen=True, slots=True)
class KeyValue:
    """Key and value caches, `[1, NKV, C, HD]` each."""

    key: ir.Value
    value: ir.Value


def full_attention(
    ctx: Context,
    config: TextConfig,
    prefix: str,
    x: ir.Value,
    past: KeyValue,
    positions: Positions,
) -> tuple[ir.Value, KeyValue]:
    """One attention mixer over normalised `x` `[1, T, H]`."""
    target = ctx.target
    query, key, value, gate = _projections(ctx, config, prefix, x)
    query = _normed_rotated(
        ctx, config, f"{prefix}.q_norm.weight", query, config.num_heads, positions
    )
    key = _normed_rotated(
        ctx, config, f"{prefix}.k_norm.weight", key, config.num_kv_heads, positions
    )
    output, present_key, present_value = target.attention(
        query,
        key,
        value,
        (past.key, past.value),
        positions.lengths,
        heads=config.num_heads,
        kv_heads=config.num_kv_heads,
        scale=config.head_dim**-0.5,
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


def _projections(
    ctx: Context, config: TextConfig, prefix: str, x: ir.Value
) -> tuple[ir.Value, ...]:
    """Query, key, value and gate from one multiplication.

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
    joined = ctx.target.project(
        x, "qkvg", weights, ctx.plan.decoder, _joined_bias(ctx, config, prefix)
    )
    wide, narrow = config.num_heads * dim, config.num_kv_heads * dim
    return ctx.graph.split(joined, wide, narrow, narrow, wide)


def _bias(ctx: Context, config: TextConfig, name: str) -> npt.NDArray[np.float32] | None:
    return ctx.vector(name) if config.attention_bias else None


def _joined_bias(ctx: Context, config: TextConfig, prefix: str) -> npt.NDArray[np.float32] | None:
    if not config.attention_bias:
        return None
    pairs = ctx.vector(f"{prefix}.q_proj.bias").reshape(-1, 2, config.head_dim)
    key, value = ctx.vector(f"{prefix}.k_proj.bias"), ctx.vector(f"{prefix}.v_proj.bias")
    return np.concatenate([pairs[:, 0].ravel(), key, value, pairs[:, 1].ravel()])


def _normed_rotated(
    ctx: Context, config: TextConfig, norm: str, x: ir.Value, heads: int, positions: Positions
) -> ir.Value:
    graph, dim = ctx.graph, config.head_dim
    split = graph.reshape(x, 1, -1, heads, dim)
    normed = ctx.target.rms_norm(split, ctx.zero_centred(norm), config.eps)
    return ctx.target.rotary(
        graph.reshape(normed, 1, -1, heads * dim),
        positions.ids,
        positions.tables,
        heads=heads,
        dim=config.rope.dim,
        sections=config.rope.sections,
    )
