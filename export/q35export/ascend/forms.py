"""Ways to say the same to vendor packages and converters that differ, and a decode graph rewritten
for one of them. Weights stay where they are.

Sources disagree on three things. One revision of the kernels registers the recurrent one as
`RecurrentGatedDeltaRule310P`. The inputs of that kernel end in `g`, `gk`, `num_accepted_tokens`, of
which `gk` has no producer: the scripts for Qwen3.5-4B leave a gap and say so in `input_index`,
those for 0.8B name `num_accepted_tokens` before `gk`, which is right wherever inputs are bound one
after the other. Scatter is not listed for this chip by CANN, though the 4B scripts use it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import onnx_ir as ir

from q35chat.errors import Option, UsageError
from q35export.graph import Array

RECURRENT = "RecurrentGatedDeltaRule"
RECURRENT_310P = f"{RECURRENT}310P"
_ORDERED = ("g", "num_accepted_tokens", "gk")


@dataclass(frozen=True, slots=True)
class KernelForms:
    """What is done otherwise than a graph is exported. The first three change a decode graph: the
    kernel's other name, its inputs without a gap, the cache written by selection. The others are
    for a runtime: a prefill that goes on from no state, one that is never padded, and steps of one
    token only."""

    recurrent_310p: bool = False
    ordered_inputs: bool = False
    selected_cache: bool = False
    fresh_prefill: bool = False
    exact_prefill: bool = False
    single_steps: bool = False

    @classmethod
    def parse(cls, text: str) -> KernelForms:
        """From names with commas between them. Raises UsageError."""
        known = {field.name.replace("_", "-"): field.name for field in fields(cls)}
        words = [word.strip() for word in text.split(",") if word.strip()]
        if wrong := [word for word in words if word not in known]:
            raise UsageError(
                f"{Option.KERNELS} knows {', '.join(known)}, not {', '.join(wrong)}; "
                "a trial of the operators says which to give"
            )
        return cls(**{known[word]: True for word in words})

    def __str__(self) -> str:
        """As `parse` reads it; empty where all is as exported."""
        chosen = (field.name for field in fields(self) if getattr(self, field.name))
        return ",".join(name.replace("_", "-") for name in chosen)

    def joined(self, other: KernelForms) -> KernelForms:
        """All that either has."""
        names = [field.name for field in fields(self)]
        return KernelForms(*(getattr(self, name) or getattr(other, name) for name in names))

    def of(self, graph: str) -> KernelForms:
        """Those that concern the graph of that name."""
        if graph == "decode":
            return KernelForms(
                self.recurrent_310p,
                self.ordered_inputs,
                self.selected_cache,
                single_steps=self.single_steps,
            )
        if graph == "prefill":
            return KernelForms(fresh_prefill=self.fresh_prefill, exact_prefill=self.exact_prefill)
        return KernelForms()


AS_EXPORTED = KernelForms()
_FOR_RUNTIMES = {"fresh-prefill", "exact-prefill", "single-steps"}


def in_graph(forms: str) -> frozenset[str]:
    """Those of `forms`, as `KernelForms` writes them, that are written into a graph."""
    return frozenset(filter(None, forms.split(","))) - _FOR_RUNTIMES


def rewrite(model: ir.Model, forms: KernelForms) -> None:
    """Change the Custom nodes of `model` in place."""
    fresh: dict[ir.Value, ir.Value] = {}
    for node in list(model.graph):
        kind = node.attributes.get_string("type") if node.op_type == "Custom" else ""
        if kind == RECURRENT:
            _rewrite_recurrent(node, forms)
        elif kind == "Scatter" and forms.selected_cache:
            _select(model.graph, node, fresh)


def _rewrite_recurrent(node: ir.Node, forms: KernelForms) -> None:
    if forms.recurrent_310p:
        node.attributes["type"] = ir.AttrString("type", RECURRENT_310P)
    if forms.ordered_inputs:
        names = [*node.attributes.get_strings("input_names")[: -len(_ORDERED)], *_ORDERED]
        node.attributes["input_names"] = ir.AttrStrings("input_names", names)
        node.attributes["optional_input_names"] = ir.AttrStrings("optional_input_names", _ORDERED)
        connected = range(len(node.inputs))
        node.attributes["input_index"] = ir.AttrInt64s("input_index", list(connected))


def _select(graph: ir.Graph, node: ir.Node, fresh: dict[ir.Value, ir.Value]) -> None:
    """`[1, NKV, C, HD]`, each slot the new row or what it holds, in place of a Scatter. `fresh` has
    for an index of a slot what was made of it already."""
    cache, slot, rows = node.inputs
    (written,) = node.outputs
    assert slot is not None
    assert written.shape is not None
    shape = written.shape.numpy()
    size = _constant(graph, "selection.shape", np.array(shape, np.int64))
    if slot not in fresh:
        fresh[slot] = _is_slot(graph, node, slot, shape[2], size)
    wide = ir.Node("", "Expand", [rows, size], name=f"{node.name}.rows")
    taken = ir.Node("", "Where", [fresh[slot], wide.outputs[0], cache], name=f"{node.name}.select")
    graph.insert_before(node, [wide, taken])
    result, name = taken.outputs[0], written.name
    result.type, result.shape = written.type, written.shape
    written.replace_all_uses_with(result, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    result.name = name


def _is_slot(
    graph: ir.Graph, before: ir.Node, slot: ir.Value, capacity: int, size: ir.Value
) -> ir.Value:
    """Bools of the cache's shape: whether a slot is the one to write."""
    every = _constant(graph, "selection.every", np.arange(capacity, dtype=np.int32))
    column = _constant(graph, "selection.column", np.array([capacity, 1], np.int64))
    to_int32 = ir.AttrInt64("to", ir.DataType.INT32)
    narrow = ir.Node("", "Cast", [slot], [to_int32], name="selection.slot")
    equal = ir.Node("", "Equal", [every, narrow.outputs[0]], name="selection.equal")
    upright = ir.Node("", "Reshape", [equal.outputs[0], column], name="selection.upright")
    spread = ir.Node("", "Expand", [upright.outputs[0], size], name="selection.fresh")
    graph.insert_before(before, [narrow, equal, upright, spread])
    return spread.outputs[0]


def _constant(graph: ir.Graph, name: str, array: Array) -> ir.Value:
    if name not in graph.initializers:
        tensor = ir.Tensor(array, name=name)
        value = ir.Value(
            name=name,
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(array.shape),
            const_value=tensor,
        )
        graph.register_initializer(value)
    return graph.initializers[name]
