"""The decoder of the `cpu` target: prefill, continuation and decode in one graph.

Inputs, in order: `input_ids` `[1, T]` int64, `attention_mask` `[1, C]` int32 (ones for all
slots filled after this call), `position_ids` `[3, 1, T]` int64, `image_embeds` `[M, H]` FP32
(the rows of this call's picture tokens, in order; M may be 0), `logits_count` `[1]` int64, and
the states of every layer. Outputs: `logits` `[1, N, V]` of the last N = `logits_count` tokens;
where 64 divides V, `logits_maxima` `[1, N, V / 64]`, the largest of each 64 neighbours, or NaN
where a logit of that token is NaN or infinite; and each `past_*` again as `present_*`. Beside a
draft head (`mtp.py`) there is one more: `hidden`
`[1, T, H]`, what the head reads at every token.
The key and value caches must be bound to the same buffer on both sides. The other states may be:
the convolution reads its state into a Concat and takes the next one from there, and LinearAttention
works on a copy of its state that is none where both are one buffer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from q35export.blocks.context import Context
from q35export.blocks.decoder import decoder_layers, embedding, final_norm, head
from q35export.blocks.full_attention import KeyValue, Positions
from q35export.blocks.linear_attention import LinearState
from q35export.blocks.rotary import rotary_tables
from q35export.calibration.rotation import Rotation, TurnedWeights, rotation_of
from q35export.config import ModelConfig, TextConfig
from q35export.graph import Graph
from q35export.graphs import graph_metadata
from q35export.matrix import TensorSource
from q35export.precision import LOGIT_GROUP, PrecisionPlan
from q35export.targets.base import Values
from q35export.targets.cpu import OPSET, CpuTarget
from q35export.targets.cpu_attention import filled_rows, part_of
from q35export.targets.cpu_weights import CpuMatrix
from q35export.weights import WeightSink

FLOAT, INT32, INT64 = ir.DataType.FLOAT, ir.DataType.INT32, ir.DataType.INT64


@dataclass(frozen=True, slots=True)
class Shared:
    """What a second graph over the same weights file takes from the first: the embedding, the head,
    the rotary tables, and how the residual stream is turned."""

    table: CpuMatrix
    head: CpuMatrix
    rotary: tuple[ir.Value, ir.Value]
    rotation: Rotation | None


@dataclass(frozen=True, slots=True)
class _Inputs:
    ids: ir.Value
    mask: ir.Value
    positions: ir.Value
    images: ir.Value
    count: ir.Value
    states: tuple[LinearState | KeyValue, ...]


def build_text_graph(
    config: ModelConfig,
    source: TensorSource,
    sink: WeightSink,
    *,
    capacity: int,
    plan: PrecisionPlan,
) -> ir.Model:
    """Build the decoder with `capacity` KV slots; weights go to `sink` on the way."""
    return build_shared_text_graph(config, source, sink, capacity, plan, with_hidden=False)[0]


def build_shared_text_graph(
    config: ModelConfig,
    source: TensorSource,
    sink: WeightSink,
    capacity: int,
    plan: PrecisionPlan,
    *,
    with_hidden: bool,
) -> tuple[ir.Model, Shared]:
    """As `build_text_graph`, with the output `hidden` where asked for; and what can be shared."""
    graph = Graph("text", OPSET, sink)
    target = CpuTarget(graph, plan.matrices)
    text = config.text
    rotation = rotation_of(text.hidden_size) if plan.turned else None
    ctx = Context(graph, target, TurnedWeights(source, text) if plan.turned else source, plan)
    inputs = _declare_inputs(graph, text, capacity)
    table = target.store("embed_tokens", embedding(ctx, text), ctx.plan.head)
    pictures = turned(graph, inputs.images, rotation, shape=(-1,))
    hidden = inject_pictures(graph, config, inputs.ids, pictures, table.rows(inputs.ids))
    positions, rotary = _positions(ctx, text, capacity, inputs)
    hidden, presents = decoder_layers(ctx, text, hidden, inputs.states, positions)
    gamma = final_norm(ctx, text)
    with graph.scope("head"):
        read = hidden if with_hidden else _last(graph, hidden, inputs.count)
        normed = target.rms_norm(turned(graph, read, rotation, back=True), gamma, text.eps)
        last = _last(graph, normed, inputs.count) if with_hidden else normed
        out = table
        if not text.tied:
            out = target.store("lm_head", head(ctx, text), ctx.plan.head)
        last = turned(graph, last, rotation)
        logits = out.refined(last, out.multiply(last))
        graph.output(logits, "logits", FLOAT, (1, "N", text.vocab_size))
        _declare_maxima(graph, logits, text.vocab_size)
    if with_hidden:
        graph.output(normed, "hidden", FLOAT, (1, "T", text.hidden_size))
    _declare_presents(graph, text, capacity, presents)
    caches = _states(text, "full_attention", "key", "value")
    others = _states(text, "linear_attention", "conv", "recurrent")
    shared = Shared(table, out, rotary, rotation)
    part = part_of(capacity, text.num_heads, text.num_kv_heads)
    return graph.model(graph_metadata("text", caches, others, part)), shared


def turned(
    graph: Graph,
    rows: ir.Value,
    rotation: Rotation | None,
    *,
    back: bool = False,
    shape: tuple[int, ...] = (1, -1),
    dtype: ir.DataType = FLOAT,
) -> ir.Value:
    """`rows` `[*shape, H]` times the rotation's Q, or `back` times its transpose, in `dtype`;
    without a rotation as they are."""
    if rotation is None:
        return rows
    left, right = rotation.left, rotation.right
    factors = (left, right.T) if back else (left.T, right)
    first, second = (
        graph.constant(np.ascontiguousarray(factor, dtype.numpy())) for factor in factors
    )
    with graph.scope("turn"):
        grid = graph.reshape(rows, -1, len(left), len(right))
        product = graph.op("MatMul", first, graph.op("MatMul", grid, second))
        return graph.reshape(product, *shape, len(left) * len(right))


def _states(config: TextConfig, kind: str, *parts: str) -> list[str]:
    """The inputs that are states of the layers of a kind."""
    return [
        f"past_{part}_{index}"
        for index, found in enumerate(config.layer_types)
        if found == kind
        for part in parts
    ]


def _state_shapes(
    config: TextConfig, index: int, capacity: int
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Names (after `past_` or `present_`) and shapes of a layer's two states."""
    if config.layer_types[index] == "linear_attention":
        conv = (1, config.conv_kernel - 1, config.conv_channels)
        heads, dims = config.linear_value_heads, (config.linear_key_dim, config.linear_value_dim)
        return (f"conv_{index}", conv), (f"recurrent_{index}", (1, heads, *dims))
    cache = (1, config.num_kv_heads, capacity, config.head_dim)
    return (f"key_{index}", cache), (f"value_{index}", cache)


def _rows(graph: Graph, config: TextConfig, index: int, capacity: int) -> Values:
    """The inputs that are the filled rows of a layer's caches: keys `[S, HD]` head by head, then
    values `[B, 1, S / B, HD]`; none where they are not read so."""
    if not part_of(capacity, config.num_heads, config.num_kv_heads):
        return ()
    heads, dim = range(config.num_kv_heads), config.head_dim
    keys = (graph.input(f"filled_key_{index}_{head}", FLOAT, ("S", dim)) for head in heads)
    shape = ("B", 1, "R", dim)
    values = (graph.input(f"filled_value_{index}_{head}", FLOAT, shape) for head in heads)
    return (*keys, *values)


def _declare_inputs(graph: Graph, config: TextConfig, capacity: int) -> _Inputs:
    ids = graph.input("input_ids", INT64, (1, "T"))
    mask = graph.input("attention_mask", INT32, (1, capacity))
    positions = graph.input("position_ids", INT64, (3, 1, "T"))
    images = graph.input("image_embeds", FLOAT, ("M", config.hidden_size))
    count = graph.input("logits_count", INT64, (1,))
    states: list[LinearState | KeyValue] = []
    for index, kind in enumerate(config.layer_types):
        first, second = (
            graph.input(f"past_{name}", FLOAT, shape)
            for name, shape in _state_shapes(config, index, capacity)
        )
        if kind == "linear_attention":
            states.append(LinearState(first, second))
        else:
            states.append(KeyValue(first, second, _rows(graph, config, index, capacity)))
    return _Inputs(ids, mask, positions, images, count, tuple(states))


def _declare_presents(
    graph: Graph,
    config: TextConfig,
    capacity: int,
    presents: list[LinearState | KeyValue],
) -> None:
    for index, state in enumerate(presents):
        values = (
            (state.conv, state.recurrent)
            if isinstance(state, LinearState)
            else (state.key, state.value)
        )
        shapes = _state_shapes(config, index, capacity)
        for value, (name, shape) in zip(values, shapes, strict=True):
            graph.output(value, f"present_{name}", FLOAT, shape)


def inject_pictures(
    graph: Graph, config: ModelConfig, ids: ir.Value, images: ir.Value, embeddings: ir.Value
) -> ir.Value:
    """Put row k of `images` at the k-th picture token of `ids`.

    A picture token beyond the rows given keeps its own embedding, as in the reference when no
    picture is passed; the extra row of zeros keeps every index legal when there is no row.
    """
    op, ints = graph.op, graph.ints
    with graph.scope("pictures"):
        is_image = op("Equal", ids, ints(config.image_token_id))
        order = op("CumSum", op("Cast", is_image, to=INT64), graph.scalar(1))
        count = op("Shape", images, start=0, end=1)
        padding = graph.constant(np.zeros((1, config.text.hidden_size), np.float32))
        rows = op("Concat", images, padding, axis=0)
        index = op("Min", op("Sub", op("Max", order, ints(1)), ints(1)), count)
        given = op("And", is_image, op("LessOrEqual", order, count))
        return op("Where", op("Unsqueeze", given, ints(-1)), op("Gather", rows, index), embeddings)


def _positions(
    ctx: Context, config: TextConfig, capacity: int, inputs: _Inputs
) -> tuple[Positions, tuple[ir.Value, ir.Value]]:
    """Where the tokens lie; and the rotary tables."""
    graph = ctx.graph
    rope = config.rope
    with graph.scope("positions"):
        cos, sin = rotary_tables(rope.theta, rope.dim, capacity)
        slots: Values = filled_slots(graph, inputs.mask)
        rows = [row for state in inputs.states if isinstance(state, KeyValue) for row in state.rows]
        if rows:
            kv_heads = config.num_kv_heads
            some = rows[0], rows[kv_heads]
            slots += filled_rows(graph, inputs.ids, slots[0], *some, kv_heads)
        tables = graph.weight("cos", cos), graph.weight("sin", sin)
    return Positions((inputs.positions, *tables), slots), tables


def filled_slots(graph: Graph, mask: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The slots that `mask` lights, as GroupQueryAttention wants them."""
    total = graph.op("ReduceSum", mask, graph.ints(1), keepdims=0)
    last = graph.op("Sub", total, graph.constant(np.array([1], np.int32)))
    return last, graph.op("Squeeze", total, graph.ints(0))


def _declare_maxima(graph: Graph, logits: ir.Value, vocab_size: int) -> None:
    """What a choice among the best needs to see of all logits, while they are in the caches.

    ReduceMax may pass over a NaN, a sum never does; of blocks it is made with all threads.
    """
    if vocab_size % LOGIT_GROUP:
        return
    last = graph.ints(-1)
    blocks = graph.reshape(logits, 0, 0, -1, LOGIT_GROUP)
    broken = graph.op("ReduceSum", graph.op("ReduceSum", blocks, last, keepdims=0), last)
    nothing = graph.op("Mul", broken, graph.constant(np.array(0, np.float32)))
    maxima = graph.op("Add", graph.op("ReduceMax", blocks, last, keepdims=0), nothing)
    graph.output(maxima, "logits_maxima", FLOAT, (1, "N", vocab_size // LOGIT_GROUP))


def _last(graph: Graph, hidden: ir.Value, count: ir.Value) -> ir.Value:
    """The rows of the last `count` tokens."""
    first = graph.op("Neg", count)
    return graph.op("Slice", hidden, first, graph.ints(2**31 - 1), graph.ints(1))
