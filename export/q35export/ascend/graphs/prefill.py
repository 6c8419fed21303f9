"""The prefill graph: any number of tokens, padded on the right, from a state or from nothing.

Inputs, in order: `input_ids` `[1, T]`, `attention_mask` `[1, T]` (ones, then zeros for padding),
`position_ids` `[4, 1, T]`, all int32; `image_embeds` `[M, H]`, a row for each picture token of
this call, in order, M at least 1; and, unless stateless, `past_conv_states`,
`past_recurrent_states`, `past_kv_cache` and `past_len` `[1]` int32, the tokens before this call.
Outputs: `logits` `[1, N, V]` of the last N valid tokens, where there are as many, one unless
several are tried in a step; and the `present_*` states.
Padding changes nothing: its decay and beta are zero, convolution states and logits are those of
the last valid token, and a stateful graph keeps none of its keys and values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from q35export.ascend.graphs.options import AscendOptions
from q35export.ascend.graphs.parts import (
    TokenCount,
    count_tokens,
    decoder_target,
    logits,
    metadata_of,
    planned,
    prefill_slots,
    rotary_angles,
    rotation_in,
    valid_tokens,
)
from q35export.ascend.graphs.states import (
    StateSpec,
    declare_pasts,
    declare_presents,
    empty_states,
    layer_states,
    state_specs,
)
from q35export.ascend.targets.standard import INT32, OPSET, PrefillTokens
from q35export.blocks.context import Context
from q35export.blocks.decoder import decoder_layers, embedding
from q35export.blocks.full_attention import Positions
from q35export.config import ModelConfig
from q35export.graph import Graph
from q35export.graphs import graph_metadata
from q35export.graphs.text import turned
from q35export.matrix import TensorSource
from q35export.precision import FLOAT_PLAN, PrecisionPlan
from q35export.weights import WeightSink


@dataclass(frozen=True, slots=True)
class _Inputs:
    """`pasts` and `past_len` are missing in a stateless graph."""

    ids: ir.Value
    mask: ir.Value
    positions: ir.Value
    images: ir.Value
    pasts: tuple[ir.Value, ...]
    past_len: ir.Value | None


def build_prefill_graph(
    config: ModelConfig,
    source: TensorSource,
    sink: WeightSink,
    options: AscendOptions,
    plan: PrecisionPlan = FLOAT_PLAN,
) -> ir.Model:
    """Build the prefill graph; weights go to `sink` on the way."""
    text = config.text
    specs = state_specs(text, options, options.capacity if options.fixed_cache else "T")
    graph = Graph("prefill", OPSET, sink)
    inputs = _declare_inputs(graph, config, options, specs)
    count = count_tokens(graph, inputs.mask, text.conv_kernel - 1)
    tokens = PrefillTokens(valid_tokens(graph, inputs.mask), count.tail)
    target = decoder_target(graph, options, plan, fused=options.fused_prefill, tokens=tokens)
    cache_shape = (1, text.num_kv_heads, options.capacity, text.head_dim)
    ctx = Context(graph, target, planned(source, plan, text), plan)
    table = target.store("embed_tokens", embedding(ctx, text), None)
    rotation = rotation_in(plan, text)
    pictures = turned(graph, inputs.images, rotation, shape=(-1,), dtype=target.dtype)
    hidden = _inject_pictures(graph, config, inputs.ids, pictures, table.rows(inputs.ids))
    positions = Positions(
        rotary_angles(graph, text, inputs.positions, target),
        prefill_slots(graph, inputs.mask, count, inputs.past_len, cache_shape),
    )
    if inputs.pasts:
        states = layer_states(graph, target, text, specs, inputs.pasts)
    else:
        states = empty_states(graph, target, text, specs)
    hidden, presents = decoder_layers(ctx, text, hidden, states, positions)
    flat = graph.reshape(hidden, -1, text.hidden_size)
    last = graph.op("Gather", flat, _last_tokens(graph, count, options.prefill_rows), axis=0)
    result = logits(ctx, target, text, table, last)
    shape = (1, options.prefill_rows, text.vocab_size)
    graph.output(result, "logits", options.float_type, shape)
    pads = _cache_padding(graph, inputs, options)
    declare_presents(graph, target, specs, presents, pads)
    fused = str(options.fused_prefill).lower()
    extra = {"q35chat.fused": fused, **options.metadata(), **metadata_of(plan)}
    return graph.model(graph_metadata("prefill") | extra)


def _last_tokens(graph: Graph, count: TokenCount, rows: int) -> ir.Value:
    """Where the last `rows` valid tokens lie, `[rows]` int32; the first one for those before it."""
    if rows == 1:
        return count.last
    before, zero = (
        graph.constant(np.array(numbers, np.int32)) for numbers in (range(1 - rows, 1), [0])
    )
    return graph.op("Max", graph.op("Add", count.last, before), zero)


def _declare_inputs(
    graph: Graph, config: ModelConfig, options: AscendOptions, specs: tuple[StateSpec, ...]
) -> _Inputs:
    ids = graph.input("input_ids", INT32, (1, "T"))
    mask = graph.input("attention_mask", INT32, (1, "T"))
    positions = graph.input("position_ids", INT32, (4, 1, "T"))
    images = graph.input("image_embeds", options.float_type, ("M", config.text.hidden_size))
    if not options.stateful_prefill:
        return _Inputs(ids, mask, positions, images, (), None)
    pasts = declare_pasts(graph, specs)
    return _Inputs(ids, mask, positions, images, pasts, graph.input("past_len", INT32, (1,)))


def _inject_pictures(
    graph: Graph, config: ModelConfig, ids: ir.Value, pictures: ir.Value, embeddings: ir.Value
) -> ir.Value:
    """Put row k of `pictures` at the k-th picture token, by index.

    Any other token reads a legal row, which is then not taken.
    """
    op, width = graph.op, config.text.hidden_size
    one = graph.constant(np.array([1], np.int32))
    with graph.scope("pictures"):
        is_image = op("Equal", ids, graph.constant(np.array([config.image_token_id], np.int32)))
        order = op("CumSum", op("Cast", is_image, to=int(INT32)), graph.scalar(1))
        index = op("Sub", op("Max", order, one), one)
        rows = op("Gather", pictures, index, axis=0)
        taken = op("Expand", op("Unsqueeze", is_image, graph.ints(-1)), graph.ints(1, 1, width))
        return op("Where", taken, rows, embeddings)


def _cache_padding(graph: Graph, inputs: _Inputs, options: AscendOptions) -> ir.Value | None:
    """Pads that fill the KV of a stateless prefill up to the capacity with zeros, at the end of
    the token axis only; None where nothing is to be filled."""
    if inputs.pasts or not options.fixed_cache:
        return None
    op, ints = graph.op, graph.ints
    with graph.scope("states"):
        length = op("Slice", op("Shape", inputs.ids), ints(1), ints(2))
        missing = op("Sub", ints(options.capacity), length)
        return op("Concat", ints(0, 0, 0, 0, 0, 0), missing, ints(0), axis=0)
