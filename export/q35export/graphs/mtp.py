"""The checkpoint's own head for drafts (multi-token prediction), for the `cpu` target.

One more decoder layer that reads what the decoder made of token `t`, and token `t + 1`, and
predicts token `t + 2`:

    x = fc([norm_e(embed(token[t + 1])), norm_h(hidden[t])])
    hidden' = norm(layer(x)),  draft = argmax(head(hidden'))

`hidden[t]` comes after the decoder's final norm; the rotary position is that of token `t`.
The embedding is the decoder's, so this graph lies beside the decoder's over the same weights file.
So is the head, unless only some tokens may be drafts: then this graph has a copy of their rows.
The definition is that of DeepSeek-V3 (section 2.2 of its report) as vLLM and llama.cpp run it for
Qwen3.5: embedding first, hidden state after the final norm (before it, llama.cpp saw fewer drafts
come true).
For a further draft `hidden'` takes the place of `hidden`.

Inputs, in order: `input_ids` `[1, T]` int64, `hidden` `[1, T, H]` FP32, `attention_mask` `[1, C]`
int32 (ones for all slots filled after this call; token `t + 1` lies in slot `t`), `position_ids`
`[3, 1, T]` int64, `image_embeds` `[M, H]` FP32, and `past_key_0`, `past_value_0`. Outputs: `draft`
`[1, 1]` int64 and `next_hidden` `[1, 1, H]` of the last token only, and the caches, which must be
bound to the same buffer on both sides.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from q35export.blocks.context import Context
from q35export.blocks.decoder import decoder_layers, embedding, head
from q35export.blocks.full_attention import KeyValue, Positions
from q35export.calibration.rotation import TurnedWeights
from q35export.config import ModelConfig, TextConfig
from q35export.graph import Graph
from q35export.graphs import graph_metadata
from q35export.graphs.text import (
    FLOAT,
    INT32,
    INT64,
    Shared,
    build_shared_text_graph,
    filled_slots,
    inject_pictures,
    turned,
)
from q35export.matrix import MTP, Float32, Matrix, TensorSource
from q35export.precision import PrecisionPlan, StoredAs
from q35export.quantize import Codes
from q35export.targets.cpu import OPSET, CpuTarget
from q35export.targets.cpu_weights import CpuMatrix, store
from q35export.weights import WeightSink

Int64 = npt.NDArray[np.int64]

_STATES = ("past_key_0", "past_value_0")


def build_text_and_head(
    config: ModelConfig,
    source: TensorSource,
    sink: WeightSink,
    *,
    capacity: int,
    plan: PrecisionPlan,
    drafts: Int64 | None = None,
) -> tuple[ir.Model, ir.Model]:
    """The decoder with the output `hidden`, and the head that drafts; weights go to `sink` once.

    `drafts` are the tokens that it chooses among, ascending; None: all.
    """
    model, shared = build_shared_text_graph(config, source, sink, capacity, plan, with_hidden=True)
    return model, _head_graph(config, source, sink, shared, capacity, plan, drafts)


def _head_graph(
    config: ModelConfig,
    source: TensorSource,
    sink: WeightSink,
    shared: Shared,
    capacity: int,
    plan: PrecisionPlan,
    drafts: Int64 | None,
) -> ir.Model:
    graph = Graph("mtp", OPSET, sink)
    target = CpuTarget(graph)
    text = config.text
    ctx = Context(graph, target, TurnedWeights(source, text) if plan.turned else source, plan)
    ids = graph.input("input_ids", INT64, (1, "T"))
    hidden = graph.input("hidden", FLOAT, (1, "T", text.hidden_size))
    mask = graph.input("attention_mask", INT32, (1, capacity))
    places = graph.input("position_ids", INT64, (3, 1, "T"))
    images = graph.input("image_embeds", FLOAT, ("M", text.hidden_size))
    cache = (1, text.num_kv_heads, capacity, text.head_dim)
    key, value = (graph.input(name, FLOAT, cache) for name in _STATES)
    past = KeyValue(key, value)

    rows = shared.table.within(graph).rows(ids)
    images = turned(graph, images, shared.rotation, shape=(-1,))
    joined = _joined(ctx, text, inject_pictures(graph, config, ids, images, rows), hidden)
    tables = tuple(graph.shared(table) for table in shared.rotary)
    positions = Positions((places, *tables), filled_slots(graph, mask))
    width = text.hidden_size
    weights = ctx.matrix(f"{MTP}fc.weight", width, 2 * width)
    x = target.project(joined, "fc", weights, ctx.plan.decoder)
    x, (present,) = decoder_layers(ctx, text, x, (past,), positions, f"{MTP}layers")
    last = graph.op("Slice", x, graph.ints(-1), graph.ints(2**31 - 1), graph.ints(1))
    last = target.rms_norm(last, ctx.zero_centred(f"{MTP}norm.weight", width), text.eps)
    chooser = shared.head.within(graph)
    if drafts is not None:
        chooser = _some_rows(ctx, text, drafts)
    logits = chooser.multiply(turned(graph, last, shared.rotation))
    draft = graph.op("ArgMax", logits, axis=-1, keepdims=0)
    if drafts is not None:
        draft = graph.op("Gather", graph.weight("drafts", drafts), draft, axis=0)
    graph.output(draft, "draft", INT64, (1, 1))
    graph.output(last, "next_hidden", FLOAT, (1, 1, text.hidden_size))
    assert isinstance(present, KeyValue)
    graph.output(present.key, "present_key_0", FLOAT, cache)
    graph.output(present.value, "present_value_0", FLOAT, cache)
    return graph.model(graph_metadata("mtp", _STATES))


def _some_rows(ctx: Context, text: TextConfig, drafts: Int64) -> CpuMatrix:
    """The head's rows of some tokens, rounded as the head is."""
    whole = embedding(ctx, text) if text.tied else head(ctx, text)
    decided = ctx.plan.matrices.get("embed_tokens" if text.tied else "head/lm_head")
    matrices = {}
    if decided is not None:
        read = decided.read

        def taken() -> tuple[Codes, Float32]:
            assert read is not None
            codes, scales = read()
            return codes[drafts], scales[drafts]

        matrices["draft_head"] = StoredAs(decided.fmt, taken if read else None)

    def rows(start: int, stop: int) -> Float32:
        return np.concatenate([whole.rows(token, token + 1) for token in drafts[start:stop]])

    some = Matrix(len(drafts), whole.k, rows)
    quantised = replace(ctx.plan.head, fine=False) if ctx.plan.head else None
    return store(ctx.graph, "draft_head", some, quantised, matrices)


def _joined(ctx: Context, text: TextConfig, embedding: ir.Value, hidden: ir.Value) -> ir.Value:
    """Both inputs, each through its own norm, side by side."""
    names, width = ("pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight"), text.hidden_size
    parts = [
        ctx.target.rms_norm(value, ctx.zero_centred(f"{MTP}{name}", width), text.eps)
        for name, value in zip(names, (embedding, hidden), strict=True)
    ]
    return ctx.graph.op("Concat", *parts, axis=-1)
