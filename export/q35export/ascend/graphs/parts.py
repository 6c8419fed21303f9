"""What prefill and decode share: target, rotation angles and logits; and where the tokens of a
prefill lie, all from its mask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from q35export.ascend.graphs.options import AscendOptions
from q35export.ascend.ops import StepTokens
from q35export.ascend.targets.ascend_310p import Ascend310pTarget
from q35export.ascend.targets.portable import PortableTarget
from q35export.ascend.targets.standard import (
    BLOCKED,
    FLOAT,
    PrefillTokens,
    RowMatrix,
    StandardTarget,
)
from q35export.blocks.context import Context
from q35export.blocks.decoder import embedding, final_norm, head
from q35export.blocks.rotary import signed_frequencies
from q35export.calibration.rotation import Rotation, TurnedWeights, rotation_of
from q35export.config import TextConfig
from q35export.graph import Graph
from q35export.graphs.text import turned
from q35export.matrix import TensorSource
from q35export.precision import PrecisionPlan
from q35export.targets.base import Values

LM_HEAD = "lm_head"


def planned(source: TensorSource, plan: PrecisionPlan, config: TextConfig) -> TensorSource:
    """The decoder's weights, for a turned residual stream where the plan has one."""
    return TurnedWeights(source, config) if plan.turned else source


def rotation_in(plan: PrecisionPlan, config: TextConfig) -> Rotation | None:
    """What the residual stream is turned by, if it is."""
    return rotation_of(config.hidden_size) if plan.turned else None


def metadata_of(plan: PrecisionPlan) -> dict[str, str]:
    """What a graph says of its weights."""
    return {"q35chat.weights": "int8"} if plan.steps else {}


def decoder_target(
    graph: Graph,
    options: AscendOptions,
    plan: PrecisionPlan,
    *,
    fused: bool,
    tokens: PrefillTokens | None,
    step: StepTokens | None = None,
) -> Ascend310pTarget | PortableTarget:
    """The target of a prefill or decode graph; a `step` is one of several tokens."""
    types = options.float_type, options.cache_type
    if fused:
        return Ascend310pTarget(graph, *types, tokens=tokens, step=step, steps=plan.steps)
    longest = max(options.gears)
    return PortableTarget(graph, *types, tokens=tokens, longest=longest, steps=plan.steps)


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


def logits(
    ctx: Context, target: StandardTarget, config: TextConfig, table: RowMatrix, last: ir.Value
) -> ir.Value:
    """Logits `[1, N, V]` of the hidden states `last` `[N, H]`. A head in int8 is a matrix of its
    own, for rows of a tied one are looked up as floats."""
    graph, rotation = ctx.graph, rotation_in(ctx.plan, config)
    with graph.scope("head"):
        gamma = final_norm(ctx, config)
        ahead = turned(graph, last, rotation, back=True, shape=(-1,), dtype=target.dtype)
        normed = target.rms_norm(ahead, gamma, config.eps)
        read = turned(graph, normed, rotation, shape=(-1,), dtype=target.dtype)
        if graph.scoped(LM_HEAD) in target.steps:
            weights = embedding(ctx, config) if config.tied else head(ctx, config)
            product = target.multiply_codes(read, ("N",), LM_HEAD, weights)
        else:
            if not config.tied:
                table = target.store(LM_HEAD, head(ctx, config), ctx.plan.head)
            product = table.multiply(read)
        return graph.reshape(product, 1, -1, config.vocab_size)


@dataclass(frozen=True, slots=True)
class TokenCount:
    """`number` `[1]`, valid tokens; `order` `[1, T]`, valid tokens up to each; `last` `[1]`, the
    last valid one; `tail` `[K - 1]`, the last inputs of the convolution behind the past ones; all
    int32."""

    number: ir.Value
    order: ir.Value
    last: ir.Value
    tail: ir.Value


def count_tokens(graph: Graph, mask: ir.Value, remembered: int) -> TokenCount:
    """Counts of `attention_mask` `[1, T]`; the convolution remembers `remembered` inputs."""
    op = graph.op
    with graph.scope("tokens"):
        number = op("ReduceSum", mask, graph.ints(1), keepdims=0)
        return TokenCount(
            number=number,
            order=op("CumSum", mask, graph.scalar(1)),
            last=op("Sub", number, _int32(graph, [1])),
            tail=op("Add", number, _int32(graph, range(remembered))),
        )


def valid_tokens(graph: Graph, mask: ir.Value) -> ir.Value:
    """Ones and zeros `[T, 1]` FP32 of `attention_mask` `[1, T]`."""
    with graph.scope("tokens"):
        return graph.reshape(graph.op("Cast", mask, to=int(FLOAT)), -1, 1)


def prefill_slots(
    graph: Graph,
    mask: ir.Value,
    count: TokenCount,
    past_len: ir.Value | None,
    cache: tuple[int, ...],
) -> Values:
    """What `attention` of a prefill wants.

    Without a past: (mask,) of `[1, 1, T, T]`, each token seeing the valid ones up to itself. With
    one: (mask, index, fresh) over the slots, the new tokens lying at `past_len` and after; `cache`
    is the shape `[1, NKV, C, HD]` of one cache, to which `fresh` is spread once for all layers.
    """
    op = graph.op
    with graph.scope("slots"):
        if past_len is None:
            earlier = op("LessOrEqual", count.order, graph.reshape(count.order, 1, 1, -1, 1))
            return (_additive(graph, op("And", earlier, op("Greater", mask, _int32(graph, [0])))),)
        slots = _int32(graph, range(cache[2]))
        place = op("Add", count.order, op("Sub", past_len, _int32(graph, [1])))
        seen = op("LessOrEqual", slots, graph.reshape(place, 1, 1, -1, 1))
        row = op("Sub", slots, past_len)
        fresh = op("And", op("Greater", row, _int32(graph, [-1])), op("Less", row, count.number))
        index = op("Min", op("Max", row, _int32(graph, [0])), count.last)
        spread = op("Expand", graph.reshape(fresh, cache[2], 1), graph.ints(*cache))
        return _additive(graph, seen), index, spread


def _additive(graph: Graph, allowed: ir.Value) -> ir.Value:
    """Zero where `allowed`, else so low that its share is zero."""
    zero, blocked = (graph.constant(np.array([x], np.float32)) for x in (0, BLOCKED))
    return graph.op("Where", allowed, zero, blocked)


def _int32(graph: Graph, numbers: range | list[int]) -> ir.Value:
    return graph.constant(np.array(list(numbers), np.int32))
