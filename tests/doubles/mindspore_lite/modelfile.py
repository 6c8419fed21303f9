"""Model files of the stand-in: a small JSON that names what to run.

`*_graph.mindir` needs its weights in `*_variables/data_0` beside it, as the real ones do.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

MAGIC = "mindspore-lite-stand-in"
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Port:
    """A graph input or output; -1 is a dynamic axis."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class Runnable(Protocol):
    """What a model file stands for."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def run(self, arrays: list[Array]) -> list[Array]:
        """Outputs of inputs, both in order."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A loaded file: the graph, its gears, and the device memory that its weights take."""

    graph: Runnable
    input_shape: str
    dynamic_dims: str
    weights: int


def write_model(
    path: Path,
    loader: str,
    arguments: dict[str, Any],
    *,
    input_shape: str = "",
    dynamic_dims: str = "",
    weights: int = 0,
) -> Path:
    """Write a model file; `loader` is "module:function", called with `arguments`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "magic": MAGIC,
        "loader": loader,
        "arguments": arguments,
        "input_shape": input_shape,
        "dynamic_dims": dynamic_dims,
        "weights": weights,
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    if path.stem.endswith("_graph"):
        variables = variables_of(path)
        variables.mkdir(exist_ok=True)
        (variables / "data_0").write_bytes(b"weights")
    return path


def variables_of(path: Path) -> Path:
    """The weights folder of a `*_graph.mindir`."""
    return path.with_name(path.stem.removesuffix("_graph") + "_variables")


def read_model(path: Path) -> ModelFile | None:
    """The file's graph, or None where it is not one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["magic"] != MAGIC:
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    module, _, function = content["loader"].partition(":")
    graph = getattr(importlib.import_module(module), function)(**content["arguments"])
    return ModelFile(graph, content["input_shape"], content["dynamic_dims"], content["weights"])
