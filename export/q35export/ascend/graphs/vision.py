"""The vision tower of the 310P: the patches of one picture, padded to a gear.

Inputs, in order: `pixel_values` `[P, patch]` in merge-block order, `position_index` `[P, 4]` int32
and `position_weight` `[P, 4]` (bilinear taps into the learned table), `patch_position` `[P, 2]`
int32 (row, column), `patch_mask` `[1, P]` int32 (ones, then zeros for padding). Output:
`image_embeds` `[P / merge**2, H]`; rows past the picture's own are to be dropped.
A picture of any grid keeps its shape: no patch sees padding.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from q35export.ascend.graphs.options import AscendOptions
from q35export.ascend.targets.portable import PortableTarget
from q35export.ascend.targets.standard import BLOCKED, FLOAT, INT32, OPSET
from q35export.blocks.context import Context
from q35export.blocks.rotary import signed_patch_frequencies
from q35export.blocks.vision_block import embedded_patches, position_table, vision_blocks
from q35export.config import ModelConfig, VisionConfig
from q35export.graph import Graph
from q35export.graphs import graph_metadata
from q35export.matrix import TensorSource
from q35export.precision import FLOAT_PLAN, PrecisionPlan
from q35export.targets.base import Values
from q35export.weights import WeightSink


def build_padded_vision_graph(
    config: ModelConfig,
    source: TensorSource,
    sink: WeightSink,
    options: AscendOptions,
    plan: PrecisionPlan = FLOAT_PLAN,
) -> ir.Model:
    """Build the vision tower; weights go to `sink` on the way."""
    vision, dtype = config.tower, options.float_type
    graph = Graph("vision", OPSET, sink)
    pixels = graph.input("pixel_values", dtype, ("P", vision.patch_width))
    index = graph.input("position_index", INT32, ("P", 4))
    weight = graph.input("position_weight", dtype, ("P", 4))
    place = graph.input("patch_position", INT32, ("P", 2))
    mask = graph.input("patch_mask", INT32, (1, "P"))
    target = PortableTarget(graph, dtype, dtype, patch_mask=_patch_mask(graph, mask))
    ctx = Context(graph, target, source, plan)
    embedded = embedded_patches(ctx, vision, pixels)
    learned = _learned_positions(ctx, vision, index, weight)
    hidden = graph.op("Unsqueeze", graph.op("Add", embedded, learned), graph.ints(0))
    tables = _patch_angles(target, vision, place)
    rows = vision_blocks(ctx, vision, hidden, tables)
    graph.output(rows, "image_embeds", dtype, ("M", vision.out_hidden_size))
    return graph.model(graph_metadata("vision") | options.metadata())


def _patch_mask(graph: Graph, mask: ir.Value) -> ir.Value:
    """`[1, 1, P]`: zero for a patch, else so low that its share is zero."""
    op = graph.op
    with graph.scope("mask"):
        zero, blocked = (graph.constant(np.array([x], np.float32)) for x in (0, BLOCKED))
        lit = op("Greater", graph.reshape(mask, 1, 1, -1), graph.constant(np.array([0], np.int32)))
        return op("Where", lit, zero, blocked)


def _learned_positions(
    ctx: Context, config: VisionConfig, index: ir.Value, weight: ir.Value
) -> ir.Value:
    """The learned table, interpolated bilinearly at each patch: `[P, hidden]`."""
    op, ints = ctx.graph.op, ctx.graph.ints
    with ctx.graph.scope("positions"):
        table = ctx.target.store("table", position_table(ctx, config), None)
        taps = op("Mul", table.rows(index), op("Unsqueeze", weight, ints(-1)))
        return op("ReduceSum", taps, ints(1), keepdims=0)


def _patch_angles(target: PortableTarget, config: VisionConfig, place: ir.Value) -> Values:
    """Cosines and signed sines of each patch, `[P, 1, head_dim]`."""
    graph = target.graph
    op, ints = graph.op, graph.ints
    with graph.scope("rotary"):
        frequencies = signed_patch_frequencies(config.rope_theta, config.head_dim)
        position = op("Unsqueeze", op("Cast", place, to=int(FLOAT)), ints(-1))
        angles = op("ReduceSum", op("Mul", position, graph.constant(frequencies)), ints(1))
        cos, sin = op("Cos", angles), op("Sin", angles)
        return target.cast(cos, FLOAT, target.dtype), target.cast(sin, FLOAT, target.dtype)
