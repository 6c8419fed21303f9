"""The vision tower of the `cpu` target: the patches of one picture, of any grid.

Inputs: `pixel_values` `[P, patch]` FP32 in merge-block order, `position_index` `[P, 4]` int64
and `position_weight` `[P, 4]` FP32 (bilinear taps into the learned table), `patch_position`
`[P, 2]` int64 (row, column). Output: `image_embeds` `[P / merge**2, H]` FP32.
"""

from __future__ import annotations

import onnx_ir as ir

from q35export.blocks.context import Context
from q35export.blocks.rotary import inverse_frequencies
from q35export.blocks.vision_block import embedded_patches, position_table, vision_blocks
from q35export.config import ModelConfig, VisionConfig
from q35export.graph import Graph
from q35export.graphs import graph_metadata
from q35export.matrix import TensorSource
from q35export.precision import PrecisionPlan
from q35export.targets.cpu import OPSET, CpuTarget
from q35export.weights import WeightSink

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


def build_vision_graph(
    config: ModelConfig, source: TensorSource, sink: WeightSink, *, plan: PrecisionPlan
) -> ir.Model:
    """Build the vision tower; weights go to `sink` on the way."""
    graph = Graph("vision", OPSET, sink)
    ctx = Context(graph, CpuTarget(graph), source, plan)
    vision = config.tower
    pixels = graph.input("pixel_values", FLOAT, ("P", vision.patch_width))
    index = graph.input("position_index", INT64, ("P", 4))
    weight = graph.input("position_weight", FLOAT, ("P", 4))
    place = graph.input("patch_position", INT64, ("P", 2))
    embedded = embedded_patches(ctx, vision, pixels)
    learned = _learned_positions(ctx, vision, index, weight)
    hidden = graph.op("Unsqueeze", graph.op("Add", embedded, learned), graph.ints(0))
    tables = _rotary_tables(graph, vision, place)
    rows = vision_blocks(ctx, vision, hidden, tables)
    graph.output(rows, "image_embeds", FLOAT, ("M", vision.out_hidden_size))
    return graph.model(graph_metadata("vision"))


def _learned_positions(
    ctx: Context, config: VisionConfig, index: ir.Value, weight: ir.Value
) -> ir.Value:
    """The learned table, interpolated bilinearly at each patch: `[P, hidden]`."""
    graph = ctx.graph
    with graph.scope("positions"):
        table = ctx.target.store("table", position_table(ctx, config), None)
        taps = table.rows(index)
        row = graph.op("Unsqueeze", weight, graph.ints(1))
        return graph.op("Squeeze", graph.op("MatMul", row, taps), graph.ints(1))


def _rotary_tables(
    graph: Graph, config: VisionConfig, place: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Cosines and sines `[P, head_dim / 2]`: a quarter of the head turns by row, a quarter by
    column, and the second half repeats the first."""
    with graph.scope("rotary"):
        frequencies = graph.constant(inverse_frequencies(config.rope_theta, config.head_dim // 2))
        position = graph.op("Unsqueeze", graph.op("Cast", place, to=FLOAT), graph.ints(-1))
        angles = graph.reshape(graph.op("Mul", position, frequencies), -1, config.head_dim // 2)
        return graph.op("Cos", angles), graph.op("Sin", angles)
