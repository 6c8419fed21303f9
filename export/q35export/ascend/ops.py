"""The fused operators of the 310P as nodes of type `Custom` in the default domain.

A node carries a contract that the converter hands to the kernel: names and their order are the
kernel's own. Everything at a kernel's boundary is FP16, except the decay, which runs through `exp`,
and the codes of int8 multiplications.
What a kernel computes, the executor knows (`reference.kernels`), which is written apart from this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from q35chat.errors import ExportError
from q35export.graph import Dim, Graph
from q35export.targets.base import AttentionHeads, DeltaHeads, DeltaOperands

_ONNX_FLOAT16, _MINDSPORE_FLOAT16 = 10, 42
_ONNX_INT8 = 3
_HIGH_PERFORMANCE = 1  # 0 is high precision, on 310P too
_UNPAGED = 0
_TOKEN_AXIS = 2


def custom_node(
    graph: Graph,
    kind: str,
    inputs: Mapping[str, ir.Value | None],
    outputs: Mapping[str, Sequence[Dim]],
    optional: Sequence[str] = (),
    output_type: ir.DataType = ir.DataType.FLOAT16,
    **attributes: Any,
) -> tuple[ir.Value, ...]:
    """Add a node of the kernel `kind`: all of its inputs by name in its order, None for one that is
    not connected; its outputs of `output_type` by name, with names for open axes.

    The list of optional names is typed even when it is empty: the converter refuses it otherwise.
    """
    connected = [value for value in inputs.values() if value is not None]
    with graph.scope(kind):
        values = graph.ops(
            "Custom",
            *connected,
            outputs=len(outputs),
            type=kind,
            input_names=list(inputs),
            optional_input_names=ir.AttrStrings("optional_input_names", optional),
            input_index=[at for at, value in enumerate(inputs.values()) if value is not None],
            output_names=list(outputs),
            **attributes,
        )
    for value, shape in zip(values, outputs.values(), strict=True):
        value.type, value.shape = ir.TensorType(output_type), ir.Shape(shape)
    return values


def chunk_gated_delta_rule(
    graph: Graph, given: DeltaOperands, lengths: ir.Value, heads: DeltaHeads
) -> tuple[ir.Value, ir.Value]:
    """The gated delta rule over all tokens of a prefill, their number in `lengths` `[1]` int32: the
    output `[T, NV, DV]` and the final state `[1, NV, DV, DK]`.

    Query and key are `[T, NK, DK]`, value `[T, NV, DV]`, beta and decay `[T, NV]`.
    """
    query, key, value, past, decay, beta = given
    inputs = {"query": query, "key": key, "value": value, "beta": beta, "initial_state": past}
    out, final = custom_node(
        graph,
        "ChunkGatedDeltaRule",
        {**inputs, "actual_seq_lengths": lengths, "g": decay},
        {
            "out": ("T", heads.value, heads.value_dim),
            "final_state": (1, heads.value, heads.value_dim, heads.key_dim),
        },
        optional=("g",),
        output_num=2,
        scale_value=heads.scale,
        dtype=_ONNX_FLOAT16,
    )
    return out, final


MOST_STEP_TOKENS = 8
"""Tokens of a sequence that the recurrent kernel takes in one call."""


class StepTokens(NamedTuple):
    """The tokens of a step: the axis T of them, their `number` `[1]`, and the slot that the state
    after each is put into, `slots` `[T]`, both int32."""

    axis: Dim
    number: ir.Value
    slots: ir.Value

    @classmethod
    def fixed(cls, graph: Graph, length: int) -> StepTokens:
        """As constants."""
        number, slots = np.array([length], np.int32), np.zeros(length, np.int32)
        return cls(length, graph.constant(number), graph.constant(slots))


def recurrent_gated_delta_rule(
    graph: Graph, given: DeltaOperands, tokens: StepTokens, heads: DeltaHeads
) -> tuple[ir.Value, ir.Value]:
    """The tokens of a step through the gated delta rule, one after the other, the state updated in
    place: the output `[T, NV, DV]` and the state `[1, NV, DV, DK]`. The output named like the input
    `state` is what says "in place".

    There is one sequence with one slot, so each token puts its state where the one before it did,
    and the number of accepted tokens, which says in whose slot the first state lies, is one. An
    index computed in the graph would become OneHot, which cannot be mapped. `gk`, a decay for each
    key channel, has no producer in this model.
    """
    query, key, value, past, decay, beta = given
    one = graph.constant(np.array([1], np.int32))
    inputs = {"query": query, "key": key, "value": value, "beta": beta, "state": past}
    inputs |= {"actual_seq_lengths": tokens.number, "ssm_state_indices": tokens.slots, "g": decay}
    rows, dims = heads.value, (heads.value_dim, heads.key_dim)
    out, state = custom_node(
        graph,
        "RecurrentGatedDeltaRule",
        {**inputs, "gk": None, "num_accepted_tokens": one},
        {"out": (tokens.axis, rows, heads.value_dim), "state": (1, rows, *dims)},
        optional=("g", "gk", "num_accepted_tokens"),
        output_num=2,
        output_types=[_MINDSPORE_FLOAT16, _MINDSPORE_FLOAT16],
        outputs_shape=f"3,-1,{rows},{dims[0]},4,-1,{rows},{dims[0]},{dims[1]},",
        scale_value=heads.scale,
        dtype=_ONNX_FLOAT16,
    )
    return out, state


def scatter(
    graph: Graph, cache: ir.Value, slot: ir.Value, rows: ir.Value, shape: Sequence[int]
) -> ir.Value:
    """One token's rows `[1, NKV, 1, HD]` written at `slot`, `[1]` int64, into a KV cache of `shape`
    `[1, NKV, C, HD]`, in place: the output bears the input's name."""
    inputs = {"var": cache, "indices": slot, "updates": rows}
    return custom_node(graph, "Scatter", inputs, {"var": shape}, reduce="update", axis=_TOKEN_AXIS)[
        0
    ]


def incre_flash_attention(
    graph: Graph,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    blocked: ir.Value | None,
    heads: AttentionHeads,
) -> ir.Value:
    """Attention of one new token to a KV cache: `[1, NH, 1, HD]`.

    Query is `[1, NH, 1, HD]`, key and value `[1, heads.kv, C, HD]`; `blocked` `[1, 1, 1, C]` bool
    is True where a slot must not be read, None reads them all.
    """
    return custom_node(
        graph,
        "IncreFlashAttention",
        {"query": query, "key": key, "value": value, "atten_mask": blocked},
        {"attention_out": (1, heads.query, 1, heads.dim)},
        optional=("atten_mask",),
        output_num=1,
        num_heads=heads.query,
        num_key_value_heads=heads.kv,
        scale_value=heads.scale,
        input_layout="BNSD",
        block_size=_UNPAGED,
        inner_precise=_HIGH_PERFORMANCE,
    )[0]


def expand_heads(graph: Graph, cache: ir.Value, heads: AttentionHeads, capacity: int) -> ir.Value:
    """`[1, NKV, C, HD]` as `[1, NH, C, HD]`: query head h reads key-value head h // (NH / NKV).

    On 310P the tiler of IncreFlashAttention refuses grouped heads of width 256, so the cache is
    widened just before the node, and the node is told as many key-value heads as query heads.
    Raises ExportError when NH is not a multiple of NKV.
    """
    if heads.query % heads.kv:
        raise ExportError(
            f"{heads.query} attention heads cannot share {heads.kv} key-value heads evenly; "
            "the checkpoint's config.json is wrong"
        )
    if heads.query == heads.kv:
        return cache
    each = heads.query // heads.kv
    apart = graph.op("Unsqueeze", cache, graph.ints(2))
    wide = graph.op("Expand", apart, graph.ints(1, heads.kv, each, capacity, heads.dim))
    return graph.reshape(wide, 1, heads.query, capacity, heads.dim)


def ascend_quant(
    graph: Graph, x: ir.Value, dtype: ir.DataType, step: float, shape: Sequence[Dim]
) -> ir.Value:
    """`x` of `dtype` and `shape` in int8: the nearest multiples of `step`.

    The kernel multiplies by its scale. Types are ONNX's numbers, as the scripts for Qwen3-1.7B have
    them.
    """
    return custom_node(
        graph,
        "AscendQuant",
        {"x": x},
        {"y": shape},
        output_type=ir.DataType.INT8,
        output_num=1,
        src_t=int(dtype),
        dst_t=_ONNX_INT8,
        scale=1 / step,
        offset=0.0,
    )[0]


def quant_batch_matmul(
    graph: Graph, x: ir.Value, weights: ir.Value, scales: ir.Value, shape: Sequence[Dim]
) -> ir.Value:
    """`x @ weights.T` of codes, each column times its scale, FP16 of `shape`.

    `x` is `[..., K]` int8, `weights` `[N, K]` int8, and `scales` `[N]` int64 hold the bits of a
    float each. Booleans are texts, which the converter reads as such.
    """
    inputs = {"x1": x, "x2": weights, "scale": scales}
    return custom_node(
        graph,
        "QuantBatchMatmul",
        {**inputs, "offset": None, "bias": None, "pertoken_scale": None},
        {"y": shape},
        optional=("offset", "bias", "pertoken_scale"),
        output_num=1,
        transpose_x1="false",
        transpose_x2="true",
        dtype=_ONNX_FLOAT16,
    )[0]
