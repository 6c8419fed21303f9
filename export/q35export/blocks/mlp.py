"""The gated feed-forward block."""

from __future__ import annotations

import onnx_ir as ir

from q35export.blocks.context import Context
from q35export.config import TextConfig
from q35export.matrix import stack


def gated_mlp(ctx: Context, config: TextConfig, prefix: str, x: ir.Value) -> ir.Value:
    """`down(silu(gate(x)) * up(x))`, gate and up from one multiplication."""
    width, inner = config.hidden_size, config.intermediate_size
    weights = stack(
        ctx.matrix(f"{prefix}.gate_proj.weight", inner, width),
        ctx.matrix(f"{prefix}.up_proj.weight", inner, width),
    )
    joined = ctx.target.project(x, "gate_up", weights, ctx.plan.decoder)
    gate, up = ctx.graph.split(joined, inner, inner)
    hidden = ctx.graph.op("Mul", ctx.target.silu(gate), up)
    down = ctx.matrix(f"{prefix}.down_proj.weight", width, inner)
    return ctx.target.project(hidden, "down", down, ctx.plan.decoder)
