"""What prefill and decode share: rotation angles, logits, and the choice of target."""

from __future__ import annotations

import onnx_ir as ir

from q35export.ascend.graphs.options import AscendOptions
from q35export.ascend.targets.ascend_310p import Ascend310pTarget
from q35export.ascend.targets.portable import PortableTarget
from q35export.ascend.targets.standard import FLOAT, PrefillTokens, StandardTarget
from q35export.blocks.context import Context
from q35export.blocks.decoder import final_norm, head
from q35export.blocks.rotary import signed_frequencies
from q35export.config import TextConfig
from q35export.graph import Graph
from q35export.targets.base import StoredMatrix, Values


def decoder_target(
    graph: Graph, options: AscendOptions, *, fused: bool, tokens: PrefillTokens | None
) -> Ascend310pTarget | PortableTarget:
    """The target of a prefill or decode graph."""
    types = options.float_type, options.cache_type
    if fused:
        return Ascend310pTarget(graph, *types, tokens=tokens)
    return PortableTarget(graph, *types, tokens=tokens, longest=max(options.gears))


def rotary_angles(
    graph: Graph, config: TextConfig, positions: ir.Value, target: StandardTarget
) -> Values:
    """Cosines and signed sines `[1, T, 1, head_dim]` of `position_ids` `[4, 1, T]`.

    Rows 1 to 3 rotate. Products are summed, not multiplied as matrices: the 310P's matrix unit
    knows FP16 only, which cannot hold a position times a frequency.
    """
    op, ints = graph.op, graph.ints
    with graph.scope("positions"):
        rows = op("Cast", op("Slice", positions, ints(1), ints(4), ints(0)), to=int(FLOAT))
        frequencies = signed_frequencies(config.rope, config.head_dim)[:, None]
        products = op("Mul", graph.reshape(rows, 3, -1, 1), graph.constant(frequencies))
        angles = op("ReduceSum", products, ints(0), keepdims=0)
        spread = graph.reshape(angles, 1, -1, 1, config.head_dim)
        cos, sin = op("Cos", spread), op("Sin", spread)
        return target.cast(cos, FLOAT, target.dtype), target.cast(sin, FLOAT, target.dtype)


def logits(ctx: Context, config: TextConfig, table: StoredMatrix, last: ir.Value) -> ir.Value:
    """Logits `[1, 1, V]` of the hidden state `last` `[1, H]`."""
    graph = ctx.graph
    with graph.scope("head"):
        gamma = final_norm(ctx, config)
        normed = ctx.target.rms_norm(last, gamma, config.eps)
        if not config.tied:
            table = ctx.target.store("lm_head", head(ctx, config), ctx.plan.head)
        return graph.reshape(table.multiply(normed), 1, 1, config.vocab_size)
