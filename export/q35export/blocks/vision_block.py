"""One block of the vision tower, and the merger that ends it."""

from __future__ import annotations

import onnx_ir as ir

from q35export.blocks.context import Context
from q35export.config import VisionConfig
from q35export.matrix import Matrix
from q35export.targets.base import PatchHeads, Values

# The reference fixes this epsilon in code, not in its configuration.
NORM_EPS = 1e-6


def dense(ctx: Context, x: ir.Value, name: str, prefix: str) -> ir.Value:
    """A projection with bias in the vision tower's precision."""
    weights: Matrix = ctx.matrix(f"{prefix}.weight")
    return ctx.target.project(x, name, weights, ctx.plan.vision, ctx.vector(f"{prefix}.bias"))


def vision_block(
    ctx: Context,
    config: VisionConfig,
    prefix: str,
    x: ir.Value,
    tables: Values,
) -> ir.Value:
    """Attention of all patches to all patches, then the MLP, each with its residual.

    Args:
        x: `[1, P, hidden]`.
        tables: angles of each patch, as the target's `patch_rotary` wants them.
    """
    graph, target = ctx.graph, ctx.target
    normed = _norm(ctx, x, f"{prefix}.norm1")
    width = config.hidden_size
    heads = PatchHeads(config.num_heads, config.head_dim)
    query, key, value = graph.split(
        dense(ctx, normed, "qkv", f"{prefix}.attn.qkv"), width, width, width
    )
    query, key = (target.patch_rotary(part, tables, heads) for part in (query, key))
    mixed = target.full_attention(query, key, value, heads)
    x = graph.op("Add", x, dense(ctx, mixed, "proj", f"{prefix}.attn.proj"))
    normed = _norm(ctx, x, f"{prefix}.norm2")
    hidden = target.gelu(dense(ctx, normed, "fc1", f"{prefix}.mlp.linear_fc1"), tanh=True)
    return graph.op("Add", x, dense(ctx, hidden, "fc2", f"{prefix}.mlp.linear_fc2"))


def merger(ctx: Context, config: VisionConfig, prefix: str, x: ir.Value) -> ir.Value:
    """Join each `merge x merge` block of patches into one row of the decoder's width."""
    graph = ctx.graph
    normed = _norm(ctx, x, f"{prefix}.norm")
    joined = graph.reshape(normed, -1, config.hidden_size * config.merge_size**2)
    hidden = ctx.target.gelu(dense(ctx, joined, "fc1", f"{prefix}.linear_fc1"), tanh=False)
    return dense(ctx, hidden, "fc2", f"{prefix}.linear_fc2")


def _norm(ctx: Context, x: ir.Value, prefix: str) -> ir.Value:
    gamma, beta = ctx.vector(f"{prefix}.weight"), ctx.vector(f"{prefix}.bias")
    return ctx.target.layer_norm(x, gamma, beta, NORM_EPS)
