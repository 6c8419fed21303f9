"""How a fused operator enters an ONNX graph: a node of type `Custom` in the default domain.

The node carries a contract that the converter hands to the kernel; names and their order are the
kernel's own. Knows no operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from q35export.graph import Graph

Attributes = Sequence[ir.Attr]


@dataclass(frozen=True, slots=True)
class Output:
    """A kernel's output: its name in the contract, dtype, and shape with names for open axes."""

    name: str
    dtype: ir.DataType
    shape: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Contract:
    """What every Custom node says: kernel type, its inputs by name, which of them may be absent,
    which of the names are connected, and its outputs."""

    kind: str
    input_names: tuple[str, ...]
    optional: tuple[str, ...]
    connected: tuple[int, ...]
    outputs: tuple[Output, ...]


def custom_node(
    graph: Graph, contract: Contract, inputs: Sequence[ir.Value], attributes: Attributes
) -> tuple[ir.Value, ...]:
    """Add the node; outputs get the dtype and shape that the contract declares.

    The list of optional names is typed even when it is empty: the converter refuses it otherwise.
    """
    if len(inputs) != len(contract.connected):
        raise ValueError(f"{contract.kind}: {len(inputs)} inputs for {contract.connected}")
    common = [
        ir.AttrString("type", contract.kind),
        ir.AttrStrings("input_names", contract.input_names),
        ir.AttrStrings("optional_input_names", contract.optional),
        ir.AttrInt64s("input_index", contract.connected),
        ir.AttrStrings("output_names", [output.name for output in contract.outputs]),
    ]
    named: dict[str, Any] = {attribute.name: attribute for attribute in (*common, *attributes)}
    with graph.scope(contract.kind):
        values = graph.ops(
            "Custom",
            *inputs,
            outputs=len(contract.outputs),
            **named,
        )
    for value, output in zip(values, contract.outputs, strict=True):
        value.type = ir.TensorType(output.dtype)
        value.shape = ir.Shape(output.shape)
    return values
