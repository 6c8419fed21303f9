"""The states of the 310P graphs: one stacked tensor a kind outside, one value a layer inside.

`conv_states` `[Ll, 1, CD, K - 1]`, `recurrent_states` `[Ll, 1, NV, DK, DV]` FP32, and `kv_cache`
`[2 Lf, 1, NKV, slots, HD]` with key and value of a layer side by side. The axis of batch goes once
for all layers, so that a layer's state is one output of a Split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from q35chat.errors import ExportError
from q35export.ascend.graphs.options import AscendOptions
from q35export.ascend.targets.ascend_310p import Ascend310pTarget
from q35export.ascend.targets.portable import PortableTarget
from q35export.blocks.full_attention import KeyValue
from q35export.blocks.linear_attention import LinearState
from q35export.config import TextConfig
from q35export.graph import Dim, Graph

Mixer = Ascend310pTarget | PortableTarget
LayerState = LinearState | KeyValue | None
NAMES = ("conv_states", "recurrent_states", "kv_cache")


@dataclass(frozen=True, slots=True)
class StateSpec:
    """One stacked state: name after `past_` or `present_`, dtype, shape."""

    name: str
    dtype: ir.DataType
    shape: tuple[Dim, ...]


def state_specs(config: TextConfig, options: AscendOptions, slots: Dim) -> tuple[StateSpec, ...]:
    """The three states with `slots` slots a cache.

    Raises ExportError for a model that lacks one of the two kinds of layer, or whose convolution
    remembers nothing: a state of no elements cannot be converted.
    """
    linear = config.layer_types.count("linear_attention")
    full = config.layer_types.count("full_attention")
    if not linear or not full or config.conv_kernel < 2:
        raise ExportError(
            f"the 310P graphs need linear and full attention and a convolution of 2 or more; the "
            f"model has {linear} and {full} layers, kernel {config.conv_kernel}"
        )
    conv = (linear, 1, config.conv_channels, config.conv_kernel - 1)
    dims = (config.linear_value_heads, config.linear_key_dim, config.linear_value_dim)
    cache = (2 * full, 1, config.num_kv_heads, slots, config.head_dim)
    return (
        StateSpec("conv_states", options.float_type, conv),
        StateSpec("recurrent_states", ir.DataType.FLOAT, (linear, 1, *dims)),
        StateSpec("kv_cache", options.cache_type, cache),
    )


def declare_pasts(graph: Graph, specs: Sequence[StateSpec]) -> tuple[ir.Value, ...]:
    """The `past_*` inputs."""
    return tuple(graph.input(f"past_{spec.name}", spec.dtype, spec.shape) for spec in specs)


def layer_states(
    graph: Graph,
    target: Mixer,
    config: TextConfig,
    specs: Sequence[StateSpec],
    pasts: Sequence[ir.Value],
) -> list[LayerState]:
    """The state of every decoder layer, from the stacked `past_*`."""
    with graph.scope("states"):
        conv, recurrent, cache = (graph.op("Squeeze", past, graph.ints(1)) for past in pasts)
        recurrent = target.load_recurrent(recurrent)
        parts = [
            iter(_unstacked(graph, stack, spec))
            for stack, spec in zip((conv, recurrent, cache), specs, strict=True)
        ]
    convs, recurrents, caches = parts
    return [
        LinearState(next(convs), next(recurrents))
        if kind == "linear_attention"
        else KeyValue(next(caches), next(caches))
        for kind in config.layer_types
    ]


def empty_states(
    graph: Graph, target: Mixer, config: TextConfig, specs: Sequence[StateSpec]
) -> list[LayerState]:
    """The state of every layer before the first token, already as the target keeps it."""
    conv, recurrent, _ = specs
    past_conv = graph.constant(np.zeros(_one(conv), conv.dtype.numpy()))
    past_recurrent = graph.constant(target.empty_recurrent(_one(recurrent)))
    state = LinearState(past_conv, past_recurrent)
    return [state if kind == "linear_attention" else None for kind in config.layer_types]


def declare_presents(
    graph: Graph,
    target: Mixer,
    specs: Sequence[StateSpec],
    presents: Sequence[LinearState | KeyValue],
    padding: ir.Value | None = None,
) -> None:
    """The `present_*` outputs, stacked; `padding` are the pads that bring `[2 Lf, NKV, T, HD]` to
    the capacity."""
    linear = [state for state in presents if isinstance(state, LinearState)]
    full = [state for state in presents if isinstance(state, KeyValue)]
    with graph.scope("states"):
        conv = graph.op("Concat", *(state.conv for state in linear), axis=0)
        recurrent = graph.op("Concat", *(state.recurrent for state in linear), axis=0)
        cache = graph.op(
            "Concat", *(part for state in full for part in (state.key, state.value)), axis=0
        )
        if padding is not None:
            cache = graph.op("Pad", cache, padding)
        stacks = (conv, target.save_recurrent(recurrent), cache)
        outputs = [graph.op("Unsqueeze", stack, graph.ints(1)) for stack in stacks]
    for value, spec in zip(outputs, specs, strict=True):
        graph.output(value, f"present_{spec.name}", spec.dtype, spec.shape)


def _unstacked(graph: Graph, stack: ir.Value, spec: StateSpec) -> tuple[ir.Value, ...]:
    count = int(spec.shape[0])
    if count == 1:
        parts: tuple[ir.Value, ...] = (stack,)
    else:
        parts = graph.ops("Split", stack, graph.ints(*[1] * count), outputs=count, axis=0)
    if spec.name == "kv_cache":
        for part in parts:
            part.type, part.shape = ir.TensorType(spec.dtype), ir.Shape((1, *spec.shape[2:]))
    return parts


def _one(spec: StateSpec) -> tuple[int, ...]:
    return tuple(int(dim) for dim in spec.shape[1:])
