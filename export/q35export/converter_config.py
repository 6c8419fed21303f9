"""The configuration file of MindSpore Lite's converter for one graph, from the graph itself.

Knows the file's dialect: `key=value` with one `=`, blanks and double quotes stripped, single
quotes kept, `#` only in the first column. Runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import onnx_ir as ir

from q35chat.errors import ExportError

PRECISION = "[acl_init_options]\nge.exec.precision_mode=force_fp32\n"
_GEARS = {"T": "q35chat.gears", "M": "q35chat.image_gears", "P": "q35chat.image_gears"}
_MAX_DIMS = 128


@dataclass(frozen=True, slots=True)
class GraphInputs:
    """A graph's inputs in order, free axes as names, and what it says of itself."""

    shapes: Mapping[str, tuple[int | str, ...]]
    metadata: Mapping[str, str]

    @property
    def free_axes(self) -> list[str]:
        """The name of every free axis, input by input, in order."""
        return [axis for shape in self.shapes.values() for axis in shape if isinstance(axis, str)]


def read_inputs(path: Path) -> GraphInputs:
    """The inputs of the ONNX file `path`; weights are not read. Raises ExportError."""
    try:
        model = ir.load(path)
    except Exception as error:
        raise ExportError(
            f"{path} cannot be read as ONNX: {' '.join(str(error).split())}"
        ) from error
    shapes = {}
    for value in model.graph.inputs:
        if value.name is None or value.shape is None:
            raise ExportError(f"{path} has an input without a name or shape; export it again")
        shapes[value.name] = tuple(
            axis if isinstance(axis, int) else str(axis.value) for axis in value.shape
        )
    return GraphInputs(shapes, dict(model.metadata_props))


def config_text(graph: GraphInputs, patches_per_token: int) -> str:
    """The file. `patches_per_token` turns gears of picture tokens into patches.

    A graph without free axes gets no shapes; one whose cache grows gets shapes without gears.
    Raises ExportError for a graph that the converter would not take.
    """
    if not graph.free_axes:
        return PRECISION
    dims = sum(len(shape) for shape in graph.shapes.values())
    if dims > _MAX_DIMS:
        raise ExportError(f"the graph's inputs have {dims} axes, the converter takes {_MAX_DIMS}")
    lines = [
        PRECISION,
        "[acl_build_options]",
        'input_format="ND"',
        f'input_shape="{template(graph)}"',
    ]
    if found := gears(graph, patches_per_token):
        lines.append(f'ge.dynamicDims="{dynamic_dims(graph, found)}"')
    return "\n".join(lines) + "\n"


def template(graph: GraphInputs) -> str:
    """Every input with its shape, free axes as -1."""
    return ";".join(
        f"{name}:{','.join('-1' if isinstance(axis, str) else str(axis) for axis in shape)}"
        for name, shape in graph.shapes.items()
    )


def gears(graph: GraphInputs, patches_per_token: int) -> list[dict[str, int]]:
    """Each gear as a length for every free axis by its name; none where an axis has no gears."""
    names = sorted(set(graph.free_axes), reverse=True)
    if not set(names) <= _GEARS.keys():
        return []
    choices: list[Sequence[int]] = []
    for name in names:
        text = graph.metadata.get(_GEARS[name], "")
        lengths = [int(part) for part in text.split(",") if part.strip().isdecimal()]
        factor = patches_per_token if name == "P" else 1
        choices.append([length * factor for length in lengths])
    return [dict(zip(names, lengths, strict=True)) for lengths in product(*choices)]


def dynamic_dims(graph: GraphInputs, found: Sequence[Mapping[str, int]]) -> str:
    """The gears as the converter wants them: the values of the -1s in order."""
    return ";".join(",".join(str(gear[axis]) for axis in graph.free_axes) for gear in found)
