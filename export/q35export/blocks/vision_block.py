"""The parts of the vision tower: patches, blocks, and the merger that ends it."""

from __future__ import annotations

import onnx_ir as ir

from q35export.blocks.context import Context
from q35export.config import VisionConfig
from q35export.matrix import VISION, Matrix
from q35export.targets.base import PatchHeads, Values

# The reference fixes this epsilon in code, not in its configuration.
NORM_EPS = 1e-6


def embedded_patches(ctx: Context, config: VisionConfig, pixels: ir.Value) -> ir.Value:
    """Flattened patches `[P, patch]` in the tower's width: `[P, hidden]`."""
    side = config.patch_size
    shape = (config.hidden_size, config.in_channels, config.temporal_patch_size, side, side)
    return _dense(ctx, pixels, "patch_embed", f"{VISION}patch_embed.proj", *shape)


def position_table(ctx: Context, config: VisionConfig) -> Matrix:
    """The learned table of positions `[positions, hidden]`, unread."""
    return ctx.matrix(f"{VISION}pos_embed.weight", config.num_positions, config.hidden_size)


def _dense(ctx: Context, x: ir.Value, name: str, prefix: str, *shape: int) -> ir.Value:
    """A projection with bias in the vision tower's precision."""
    weights, bias = ctx.matrix(f"{prefix}.weight", *shape), ctx.vector(f"{prefix}.bias", shape[0])
    return ctx.target.project(x, name, weights, ctx.plan.vision, bias)


def _block(ctx: Context, config: VisionConfig, index: int, x: ir.Value, tables: Values) -> ir.Value:
    """Attention of all patches to all patches, then the MLP, each with its residual.

    Args:
        x: `[1, P, hidden]`.
        tables: angles of each patch, as the target's `patch_rotary` wants them.
    """
    graph, target = ctx.graph, ctx.target
    prefix, width, inner = f"{VISION}blocks.{index}", config.hidden_size, config.intermediate_size
    normed = _norm(ctx, x, f"{prefix}.norm1", width)
    heads = PatchHeads(config.num_heads, config.head_dim)
    query, key, value = graph.split(
        _dense(ctx, normed, "qkv", f"{prefix}.attn.qkv", 3 * width, width), width, width, width
    )
    query, key = (target.patch_rotary(part, tables, heads) for part in (query, key))
    mixed = target.patch_attention(query, key, value, heads)
    x = graph.op("Add", x, _dense(ctx, mixed, "proj", f"{prefix}.attn.proj", width, width))
    normed = _norm(ctx, x, f"{prefix}.norm2", width)
    wide = _dense(ctx, normed, "fc1", f"{prefix}.mlp.linear_fc1", inner, width)
    hidden = target.gelu(wide, tanh=True)
    return graph.op("Add", x, _dense(ctx, hidden, "fc2", f"{prefix}.mlp.linear_fc2", width, inner))


def vision_blocks(ctx: Context, config: VisionConfig, hidden: ir.Value, tables: Values) -> ir.Value:
    """Every block in order and the merger: `[P / merge**2, H]` of `hidden` `[1, P, hidden]`."""
    for index in range(config.depth):
        with ctx.graph.scope(f"block_{index}"):
            hidden = _block(ctx, config, index, hidden, tables)
    with ctx.graph.scope("merger"):
        return _merger(ctx, config, hidden)


def _merger(ctx: Context, config: VisionConfig, x: ir.Value) -> ir.Value:
    """Join each `merge x merge` block of patches into one row of the decoder's width."""
    prefix, merged = f"{VISION}merger", config.hidden_size * config.merge_size**2
    normed = _norm(ctx, x, f"{prefix}.norm", config.hidden_size)
    joined = ctx.graph.reshape(normed, -1, merged)
    wide = _dense(ctx, joined, "fc1", f"{prefix}.linear_fc1", merged, merged)
    hidden = ctx.target.gelu(wide, tanh=False)
    return _dense(ctx, hidden, "fc2", f"{prefix}.linear_fc2", config.out_hidden_size, merged)


def _norm(ctx: Context, x: ir.Value, prefix: str, width: int) -> ir.Value:
    gamma, beta = ctx.vector(f"{prefix}.weight", width), ctx.vector(f"{prefix}.bias", width)
    return ctx.target.layer_norm(x, gamma, beta, NORM_EPS)
