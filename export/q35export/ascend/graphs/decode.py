"""The decode graph: one token, or a few, from the states of all before them.

Inputs, in order: `input_ids` `[1, T]`, `attention_mask` `[1, C]` (ones for the tokens so far and
the new ones), `position_ids` `[4, 1, T]`, all int32, and `past_conv_states`,
`past_recurrent_states`, `past_kv_cache`. Outputs: `logits` `[1, T, V]` and the `present_*` states.
T is 1, or free where a step takes several. Fused, every other shape is fixed: keys and values go to
the slots up to `sum(mask) - 1` of C. Unfused, the cache grows from `past` to `past + 1` slots, and
the mask is as long.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from q35export.ascend.graphs.options import AscendOptions
from q35export.ascend.graphs.parts import (
    count_tokens,
    decoder_target,
    logits,
    metadata_of,
    planned,
    prefill_slots,
    rotary_angles,
)
from q35export.ascend.graphs.states import (
    declare_pasts,
    declare_presents,
    layer_states,
    state_specs,
)
from q35export.ascend.ops import StepTokens
from q35export.ascend.targets.standard import BLOCKED, INT32, OPSET, PrefillTokens
from q35export.blocks.context import Context
from q35export.blocks.decoder import decoder_layers, embedding
from q35export.blocks.full_attention import Positions
from q35export.config import ModelConfig, TextConfig
from q35export.graph import Dim, Graph
from q35export.graphs import graph_metadata
from q35export.matrix import TensorSource
from q35export.precision import FLOAT_PLAN, PrecisionPlan
from q35export.targets.base import Values
from q35export.weights import WeightSink

INT64 = ir.DataType.INT64
PAST, TOTAL = "past", "past + 1"


def build_decode_graph(
    config: ModelConfig,
    source: TensorSource,
    sink: WeightSink,
    options: AscendOptions,
    plan: PrecisionPlan = FLOAT_PLAN,
) -> ir.Model:
    """Build the decode graph; weights go to `sink` on the way."""
    text = config.text
    length: Dim = "T" if options.step_tokens > 1 else 1
    before: Dim = options.capacity if options.fixed_cache else PAST
    after: Dim = options.capacity if options.fixed_cache else TOTAL
    pasts, presents = (state_specs(text, options, slots) for slots in (before, after))
    graph = Graph("decode", OPSET, sink)
    ids = graph.input("input_ids", INT32, (1, length))
    mask = graph.input("attention_mask", INT32, (1, after))
    position_ids = graph.input("position_ids", INT32, (4, 1, length))
    stacks = declare_pasts(graph, pasts)
    tokens, step, slots = None, None, None
    if options.step_tokens > 1:
        tokens, step, slots = _several(graph, text, ids, mask, options.capacity)
    target = decoder_target(
        graph, options, plan, fused=options.fused_decode, tokens=tokens, step=step
    )
    ctx = Context(graph, target, planned(source, plan, text), plan)
    table = target.store("embed_tokens", embedding(ctx, text), None)
    positions = Positions(
        rotary_angles(graph, text, position_ids, target), slots or _slots(graph, mask, options)
    )
    states = layer_states(graph, target, text, pasts, stacks)
    hidden, after_states = decoder_layers(ctx, text, table.rows(ids), states, positions)
    result = logits(ctx, target, text, table, graph.reshape(hidden, -1, text.hidden_size))
    graph.output(result, "logits", options.float_type, (1, length, text.vocab_size))
    declare_presents(graph, target, presents, after_states)
    fused = str(options.fused_decode).lower()
    extra = {"q35chat.fused": fused, **options.metadata(), **metadata_of(plan)}
    if options.step_tokens > 1:
        extra["q35chat.gears"] = ",".join(map(str, range(1, options.step_tokens + 1)))
    return graph.model(graph_metadata("decode") | extra)


def _several(
    graph: Graph, config: TextConfig, ids: ir.Value, mask: ir.Value, capacity: int
) -> tuple[PrefillTokens, StepTokens, Values]:
    """What the mixers of a step of several tokens want: none of them is padding, they lie behind
    all others, and what attention wants is what it does in a prefill."""
    op = graph.op
    with graph.scope("tokens"):
        nothing = op("Sub", ids, ids)
        every = op("Add", nothing, graph.constant(np.array([1], np.int32)))
        total = op("ReduceSum", mask, graph.ints(1), keepdims=0)
    count = count_tokens(graph, every, config.conv_kernel - 1)
    before = op("Sub", total, count.number)
    cache = (1, config.num_kv_heads, capacity, config.head_dim)
    slots = prefill_slots(graph, every, count, before, cache)
    step = StepTokens("T", count.number, graph.reshape(nothing, -1))
    return PrefillTokens(None, count.tail), step, slots


def _slots(graph: Graph, mask: ir.Value, options: AscendOptions) -> Values:
    """What `attention` of a decode wants: the slot to write and the blocked ones, or the mask of
    a growing cache."""
    op = graph.op
    with graph.scope("slots"):
        lit = op("Greater", mask, graph.constant(np.array([0], np.int32)))
        if not options.fixed_cache:
            zero, blocked = (graph.constant(np.array([x], np.float32)) for x in (0, BLOCKED))
            return (op("Where", lit, zero, blocked),)
        total = op("ReduceSum", mask, graph.ints(1), keepdims=0)
        slot = op("Sub", total, graph.constant(np.array([1], np.int32)))
        every = graph.constant(np.arange(options.capacity, dtype=np.int32))
        allowed = op("And", op("LessOrEqual", every, slot), lit)
        blocked_slots = graph.reshape(op("Not", allowed), 1, 1, 1, options.capacity)
        return op("Cast", slot, to=int(INT64)), blocked_slots
