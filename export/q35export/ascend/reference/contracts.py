"""What a `Custom` node of the 310P must say, attribute by attribute, for each of six kernels and
in each way that sources have it; and what arrays must be at a graph's boundary.

A node passes only with exactly these attributes: same names, same types, same values. Numbers that
depend on the model are checked against the operands when the node runs (`kernels`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from q35chat.errors import ExportError
from q35export.graph import Array

Value = int | float | str | list[int] | list[str]

_KINDS = onnx.AttributeProto
FLOAT, INT, STRING = _KINDS.FLOAT, _KINDS.INT, _KINDS.STRING
INTS, STRINGS = _KINDS.INTS, _KINDS.STRINGS
OPEN = object()  # any value of the type


@dataclass(frozen=True, slots=True)
class Definition:
    """One kernel: attributes as (type, value), how many inputs and outputs a node has."""

    attributes: Mapping[str, tuple[int, Any]]
    inputs: Sequence[int]
    outputs: int


def _definition(
    inputs: str,
    optional: str,
    outputs: str,
    index: object,
    counts: Sequence[int],
    **attributes: tuple[int, Any],
) -> Definition:
    """Inputs and outputs by name, the places of those that are connected, and how many may be."""
    named: dict[str, tuple[int, object]] = {
        "input_names": (STRINGS, inputs.split()),
        "optional_input_names": (STRINGS, optional.split()),
        "output_names": (STRINGS, outputs.split()),
        "input_index": (INTS, list(index) if isinstance(index, Sequence) else index),
    }
    return Definition(named | attributes, counts, len(outputs.split()))


def _recurrent(names: str, optional: str, index: Sequence[int]) -> Definition:
    """One token; the last names are those that sources order in two ways."""
    return _definition(
        f"query key value beta state actual_seq_lengths ssm_state_indices {names}",
        optional,
        "out state",
        index,
        (9,),
        output_num=(INT, 2),
        output_types=(INTS, [42, 42]),
        outputs_shape=(STRING, OPEN),
        dtype=(INT, 10),
        scale_value=(FLOAT, OPEN),
    )


_GAP = "g gk num_accepted_tokens"
_ORDERED = "g num_accepted_tokens gk"
_RECURRENT = (
    _recurrent(_GAP, _GAP, (0, 1, 2, 3, 4, 5, 6, 7, 9)),
    _recurrent(_ORDERED, _ORDERED, range(9)),
)
DEFINITIONS: dict[str, tuple[Definition, ...]] = {
    "ChunkGatedDeltaRule": (
        _definition(
            "query key value beta initial_state actual_seq_lengths g",
            "g",
            "out final_state",
            [0, 1, 2, 3, 4, 5, 6],
            (7,),
            output_num=(INT, 2),
            dtype=(INT, 10),
            scale_value=(FLOAT, OPEN),
        ),
    ),
    "RecurrentGatedDeltaRule": _RECURRENT,
    "RecurrentGatedDeltaRule310P": _RECURRENT,
    "Scatter": (
        _definition(
            "var indices updates",
            "",
            "var",
            [0, 1, 2],
            (3,),
            reduce=(STRING, "update"),
            axis=(INT, 2),
        ),
    ),
    "IncreFlashAttention": (
        _definition(
            "query key value atten_mask",
            "atten_mask",
            "attention_out",
            OPEN,
            (3, 4),
            output_num=(INT, 1),
            num_heads=(INT, OPEN),
            num_key_value_heads=(INT, OPEN),
            scale_value=(FLOAT, OPEN),
            input_layout=(STRING, "BNSD"),
            block_size=(INT, 0),
            inner_precise=(INT, 1),
        ),
    ),
    "AscendQuant": (
        _definition(
            "x",
            "",
            "y",
            [0],
            (1,),
            output_num=(INT, 1),
            src_t=(INT, OPEN),
            dst_t=(INT, 3),
            scale=(FLOAT, OPEN),
            offset=(FLOAT, 0.0),
        ),
    ),
    "QuantBatchMatmul": (
        _definition(
            "x1 x2 scale offset bias pertoken_scale",
            "offset bias pertoken_scale",
            "y",
            [0, 1, 2],
            (3,),
            output_num=(INT, 1),
            transpose_x1=(STRING, "false"),
            transpose_x2=(STRING, "true"),
            dtype=(INT, 10),
        ),
    ),
}
"""The ways in which each kernel may be written; the names of the inputs say which is meant."""


@dataclass(frozen=True, slots=True)
class CustomNode:
    """A node that passed: its name, kernel, operands by name in the graph, open attributes."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


def read_custom(node: onnx.NodeProto) -> CustomNode:
    """Check a `Custom` node; ExportError says what of it differs from the definition."""
    found = {attribute.name: attribute for attribute in node.attribute}
    kind = _value(found["type"]) if "type" in found else None
    ways = DEFINITIONS.get(str(kind), ())
    if not ways or found["type"].type != STRING:
        raise ExportError(f"node {node.name}: no kernel is known for the Custom type {kind!r}")
    names = _value(found["input_names"]) if "input_names" in found else None
    meant = (way for way in ways if way.attributes["input_names"][1] == names)
    definition = next(meant, ways[0])
    where = f"node {node.name} ({kind})"
    expected = {"type": (STRING, kind), **definition.attributes}
    if found.keys() != expected.keys():
        odd = ", ".join(sorted(found.keys() ^ expected.keys()))
        raise ExportError(f"{where}: these attributes are missing or not the kernel's: {odd}")
    values = {
        name: _checked(where, found[name], *expectation) for name, expectation in expected.items()
    }
    connected = len(node.input)
    if connected not in definition.inputs or not all(node.input):
        raise ExportError(f"{where}: takes {definition.inputs} inputs, found {list(node.input)}")
    if len(node.output) != definition.outputs or not all(node.output):
        raise ExportError(f"{where}: has {definition.outputs} outputs, found {list(node.output)}")
    if definition.attributes["input_index"][1] is OPEN:
        named = list(range(connected))
        _checked(where, found["input_index"], INTS, named)
    return CustomNode(node.name, str(kind), tuple(node.input), tuple(node.output), values)


def _checked(where: str, attribute: onnx.AttributeProto, kind: int, value: object) -> Value:
    if attribute.type != kind:
        names = onnx.AttributeProto.AttributeType
        raise ExportError(
            f"{where}: attribute {attribute.name} is of type {names.Name(attribute.type)}, the "
            f"kernel wants {names.Name(kind)}"
        )
    found = _value(attribute)
    if value is not OPEN and found != value:
        raise ExportError(f"{where}: attribute {attribute.name} is {found!r}, must be {value!r}")
    return found


def _value(attribute: onnx.AttributeProto) -> Value:
    if attribute.type == STRING:
        return attribute.s.decode()
    if attribute.type == STRINGS:
        return [text.decode() for text in attribute.strings]
    if attribute.type == INTS:
        return list(attribute.ints)
    return attribute.f if attribute.type == FLOAT else attribute.i


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A graph input or output; a text in `shape` names an open axis."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str, ...]


def tensor_infos(values: Sequence[onnx.ValueInfoProto]) -> tuple[TensorInfo, ...]:
    """The boundary that a graph declares."""
    return tuple(
        TensorInfo(
            value.name,
            np.dtype(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)),
            tuple(dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim),
        )
        for value in values
    )


def check_arrays(infos: Sequence[TensorInfo], arrays: Mapping[str, Array]) -> None:
    """Raise ExportError unless `arrays` are exactly those tensors.

    An axis of one name has one length everywhere.
    """
    wanted = {info.name for info in infos}
    if wanted != arrays.keys():
        odd = ", ".join(sorted(wanted ^ arrays.keys()))
        raise ExportError(f"these tensors are missing or not the graph's: {odd}")
    lengths: dict[str, int] = {}
    for info in infos:
        array = arrays[info.name]
        fits = array.dtype == info.dtype and array.ndim == len(info.shape)
        for axis, length in zip(info.shape, array.shape, strict=False):
            known = axis if isinstance(axis, int) else lengths.setdefault(axis, length)
            fits = fits and known == length
        if not fits:
            shown = ", ".join(map(str, info.shape))
            raise ExportError(
                f"{info.name} must be {info.dtype} [{shown}], found {array.dtype} "
                f"{list(array.shape)}"
            )
