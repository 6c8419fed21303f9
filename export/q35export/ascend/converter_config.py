"""The configuration file of MindSpore Lite's converter for one graph, from the graph itself.

Knows the file's dialect: `key=value` with one `=`, blanks and double quotes stripped, single
quotes kept, `#` only in the first column. Runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from q35chat.errors import ExportError, Remedy

PRECISION_MODES = ("force_fp32", "must_keep_origin_dtype", "allow_mix_precision")
_TOKENS, _ROWS, _PATCHES = "T", "M", "P"
_GEARS = {_TOKENS: "q35chat.gears", _ROWS: "q35chat.image_gears", _PATCHES: "q35chat.image_gears"}
_MAX_DIMS, _MAX_GEARS = 128, 100


@dataclass(frozen=True, slots=True)
class CompilerSettings:
    """How CANN computes: one of `PRECISION_MODES`; for mixed precision its list of operators, a
    JSON file; and the fused operators of MindSpore Lite's own, such as "All"."""

    precision_mode: str = PRECISION_MODES[0]
    mixed_list: Path | None = None
    plugin_custom_ops: str = ""

    def text(self) -> str:
        """The sections of the file that do not depend on a graph."""
        lines = ["[acl_init_options]", f"ge.exec.precision_mode={self.precision_mode}"]
        if self.mixed_list is not None:
            lines.append(f"ge.exec.modify_mixlist={self.mixed_list.resolve()}")
        if self.plugin_custom_ops:
            lines += ["[ascend_context]", f"plugin_custom_ops={self.plugin_custom_ops}"]
        return "\n".join(lines) + "\n"


DEFAULT_SETTINGS = CompilerSettings()


@dataclass(frozen=True, slots=True)
class GraphInputs:
    """A graph's inputs in order, free axes as names, and what it says of itself."""

    shapes: Mapping[str, tuple[int | str, ...]]
    metadata: Mapping[str, str]

    @property
    def in_int8(self) -> bool:
        """Whether it multiplies in int8, by scales that the converter must leave 64 bits wide."""
        return self.metadata.get("q35chat.weights") == "int8"

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


def config_text(
    graph: GraphInputs, patches_per_token: int, settings: CompilerSettings = DEFAULT_SETTINGS
) -> str:
    """The file. `patches_per_token` turns gears of picture tokens into patches.

    A graph without free axes gets no shapes. Raises ExportError for a graph that the converter
    would not take.
    """
    if not graph.free_axes:
        return settings.text()
    dims = sum(len(shape) for shape in graph.shapes.values())
    if dims > _MAX_DIMS:
        raise ExportError(f"the graph's inputs have {dims} axes, the converter takes {_MAX_DIMS}")
    input_shape, dynamic_dims = shapes(graph, patches_per_token)
    lines = [
        settings.text(),
        "[acl_build_options]",
        'input_format="ND"',
        f'input_shape="{input_shape}"',
    ]
    if dynamic_dims:
        lines.append(f'ge.dynamicDims="{dynamic_dims}"')
    return "\n".join(lines) + "\n"


def shapes(graph: GraphInputs, patches_per_token: int) -> tuple[str, str]:
    """`input_shape` with every input, and `ge.dynamicDims`: for each gear the values of the -1s, in
    order. CANN compiles 2 to 100 gears, so a single one is written into the shapes themselves; a
    cache that grows has none.

    Raises ExportError for more than 100.
    """
    found = gears(graph, patches_per_token)
    if len(found) > _MAX_GEARS:
        raise ExportError(
            f"the graph has {len(found)} gears, the converter takes {_MAX_GEARS}:",
            Remedy.FEWER_GEARS,
        )
    fixed = found[0] if len(found) == 1 else {}
    template = ";".join(
        f"{name}:{','.join(_size(axis, fixed) for axis in shape)}"
        for name, shape in graph.shapes.items()
    )
    if fixed:
        return template, ""
    return template, ";".join(
        ",".join(str(gear[axis]) for axis in graph.free_axes) for gear in found
    )


def gears(graph: GraphInputs, patches_per_token: int) -> list[dict[str, int]]:
    """Each gear as a length for every free axis by its name; none where an axis has no gears.

    A prefill has one for each prompt length: with rows for the largest picture, but no more than
    tokens, since each row belongs to one. Fewer rows would save nothing that can be measured, and
    each gear is compiled. A step of several tokens has one for each number of them.
    """
    axes = set(graph.free_axes)
    tokens, rows, patches = (_lengths(graph, axis) for axis in (_TOKENS, _ROWS, _PATCHES))
    if axes == {_PATCHES}:
        return [{_PATCHES: count * patches_per_token} for count in patches]
    if axes == {_TOKENS}:
        return [{_TOKENS: length} for length in tokens]
    if axes != {_TOKENS, _ROWS} or not rows:
        return []
    return [{_TOKENS: length, _ROWS: min(length, max(rows))} for length in tokens]


def _lengths(graph: GraphInputs, axis: str) -> list[int]:
    text = graph.metadata.get(_GEARS[axis], "")
    return [int(part) for part in text.split(",") if part.strip().isdecimal()]


def _size(axis: int | str, fixed: Mapping[str, int]) -> str:
    return str(axis if isinstance(axis, int) else fixed.get(axis, -1))
