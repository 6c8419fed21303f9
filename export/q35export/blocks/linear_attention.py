"""Gated DeltaNet: projections, causal convolution, the gated delta rule, gated norm."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from q35export.blocks.context import Context
from q35export.config import TextConfig
from q35export.matrix import stack
from q35export.targets.base import DeltaHeads

L2_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class LinearState:
    """Convolution inputs and recurrent state, in the target's own layouts."""

    conv: ir.Value
    recurrent: ir.Value


def linear_attention(
    ctx: Context, config: TextConfig, prefix: str, x: ir.Value, past: LinearState
) -> tuple[ir.Value, LinearState]:
    """One linear-attention mixer over normalised `x` `[1, T, H]`."""
    target, width = ctx.target, config.value_width
    mixed, z = ctx.graph.split(
        target.project(
            x,
            "qkvz",
            stack(
                ctx.matrix(f"{prefix}.in_proj_qkv.weight"), ctx.matrix(f"{prefix}.in_proj_z.weight")
            ),
            ctx.plan.decoder,
        ),
        config.conv_channels,
        width,
    )
    mixed, conv = target.causal_conv(mixed, ctx.vector(f"{prefix}.conv1d.weight"), past.conv)
    heads = DeltaHeads(
        config.linear_key_heads,
        config.linear_value_heads,
        config.linear_key_dim,
        config.linear_value_dim,
    )
    both, value = ctx.graph.split(mixed, 2 * config.key_width, width)
    query, key = target.unit_heads(both, heads, L2_EPS)
    decay, beta = _gates(ctx, prefix, x)
    output, recurrent = target.gated_delta_rule(
        query, key, value, past.recurrent, decay, beta, heads
    )
    gated = target.gated_rms_norm(output, z, ctx.vector(f"{prefix}.norm.weight"), config.eps, heads)
    out = target.project(gated, "out", ctx.matrix(f"{prefix}.out_proj.weight"), ctx.plan.decoder)
    return out, LinearState(conv, recurrent)


def _gates(ctx: Context, prefix: str, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    weights = stack(
        ctx.matrix(f"{prefix}.in_proj_a.weight"), ctx.matrix(f"{prefix}.in_proj_b.weight")
    )
    both = ctx.target.project(x, "ab", weights, None)
    return ctx.target.decay_and_beta(
        both, ctx.vector(f"{prefix}.A_log"), ctx.vector(f"{prefix}.dt_bias")
    )
