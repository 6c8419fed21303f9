"""The gated feed-forward block, dense or a mixture of experts."""

from __future__ import annotations

import onnx_ir as ir

from q35export.blocks.context import Context
from q35export.config import Experts, TextConfig
from q35export.matrix import Matrix, expert_rows, stack
from q35export.targets.base import Routing


def feed_forward(ctx: Context, config: TextConfig, prefix: str, x: ir.Value) -> ir.Value:
    """The block of a decoder layer over normalised `x` `[1, T, H]`."""
    if config.experts is None:
        return _gated_mlp(ctx, config.hidden_size, config.intermediate_size, prefix, x)
    return _mixture(ctx, config.hidden_size, config.experts, prefix, x)


def _gated_mlp(ctx: Context, width: int, inner: int, prefix: str, x: ir.Value) -> ir.Value:
    """`down(silu(gate(x)) * up(x))`, gate and up from one multiplication."""
    weights = stack(
        ctx.matrix(f"{prefix}.gate_proj.weight", inner, width),
        ctx.matrix(f"{prefix}.up_proj.weight", inner, width),
    )
    joined = ctx.target.project(x, "gate_up", weights, ctx.plan.decoder)
    gate, up = ctx.graph.split(joined, inner, inner)
    hidden = ctx.graph.op("Mul", ctx.target.silu(gate), up)
    down = ctx.matrix(f"{prefix}.down_proj.weight", width, inner)
    return ctx.target.project(hidden, "down", down, ctx.plan.writers)


def _mixture(ctx: Context, width: int, experts: Experts, prefix: str, x: ir.Value) -> ir.Value:
    """What the chosen experts make of each token, and the shared one through its sigmoid gate.

    Router and gate stay in float: a choice that flips is another network.
    """
    with ctx.graph.scope("experts"):
        router = ctx.matrix(f"{prefix}.gate.weight", experts.count, width)
        scores = ctx.target.project(x, "router", router, None)
        routing = Routing(scores, experts.count, experts.chosen, experts.normalised)
        gate_up, down = expert_matrices(ctx, width, experts, prefix)
        routed = ctx.target.experts(x, routing, gate_up, down, ctx.plan.decoder)
    if not experts.shared_width:
        return routed
    with ctx.graph.scope("shared"):
        shared = _gated_mlp(ctx, width, experts.shared_width, f"{prefix}.shared_expert", x)
        gate = ctx.matrix(f"{prefix}.shared_expert_gate.weight", 1, width)
        share = ctx.graph.op("Sigmoid", ctx.target.project(x, "gate", gate, None))
        return ctx.graph.op("Add", routed, ctx.graph.op("Mul", shared, share))


def expert_matrices(
    ctx: Context, width: int, experts: Experts, prefix: str
) -> tuple[Matrix, Matrix]:
    """Gate and up of all experts `[E * 2I, H]`, row by row in turn, and down `[E * H, I]`."""
    joined = f"{prefix}.experts.gate_up_proj", (experts.count, 2 * experts.width, width)
    down = f"{prefix}.experts.down_proj", (experts.count, width, experts.width)
    return (
        expert_rows(ctx.source, *joined, interleaved=True),
        expert_rows(ctx.source, *down),
    )
