"""Gated DeltaNet: projections, causal convolution, the gated delta rule, gated norm."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from q35export.blocks.context import Context
from q35export.config import TextConfig
from q35export.matrix import stack
from q35export.targets.base import DeltaHeads, DeltaOperands

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
    target, hidden = ctx.target, config.hidden_size
    channels, width = config.conv_channels, config.value_width
    weights = stack(
        ctx.matrix(f"{prefix}.in_proj_qkv.weight", channels, hidden),
        ctx.matrix(f"{prefix}.in_proj_z.weight", width, hidden),
    )
    joined = target.project(x, "qkvz", weights, ctx.plan.decoder)
    mixed, z = ctx.graph.split(joined, channels, width)
    taps = ctx.vector(f"{prefix}.conv1d.weight", channels, 1, config.conv_kernel)
    mixed, conv = target.causal_conv(mixed, taps, past.conv)
    heads = DeltaHeads(
        config.linear_key_heads,
        config.linear_value_heads,
        config.linear_key_dim,
        config.linear_value_dim,
    )
    both, value = ctx.graph.split(mixed, 2 * config.key_width, width)
    query, key = target.unit_heads(both, heads, L2_EPS)
    decay, beta = _gates(ctx, config, prefix, x)
    given = DeltaOperands(query, key, value, past.recurrent, decay, beta)
    output, recurrent = target.gated_delta_rule(given, heads)
    gamma = ctx.vector(f"{prefix}.norm.weight", config.linear_value_dim)
    gated = target.gated_rms_norm(output, z, gamma, config.eps, heads)
    back = ctx.matrix(f"{prefix}.out_proj.weight", hidden, width)
    out = target.project(gated, "out", back, ctx.plan.writers)
    return out, LinearState(conv, recurrent)


def _gates(ctx: Context, config: TextConfig, prefix: str, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    heads = config.linear_value_heads
    weights = stack(
        ctx.matrix(f"{prefix}.in_proj_a.weight", heads, config.hidden_size),
        ctx.matrix(f"{prefix}.in_proj_b.weight", heads, config.hidden_size),
    )
    both = ctx.target.project(x, "ab", weights, None)
    a_log, dt_bias = ctx.vector(f"{prefix}.A_log", heads), ctx.vector(f"{prefix}.dt_bias", heads)
    return ctx.target.decay_and_beta(both, a_log, dt_bias)
