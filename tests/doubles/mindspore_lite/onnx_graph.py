"""A graph of the exporter as the stand-in runs it: the reference executor behind ports."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from q35export.reference import GraphExecutor
from tests.doubles.mindspore_lite.modelfile import Array, Port


class OnnxGraph:
    """One exported graph. A free axis is -1, and 64-bit integers become 32-bit, as the converter
    has it."""

    def __init__(self, path: Path) -> None:
        self._executor = GraphExecutor(path)
        self.inputs = tuple(map(_port, self._executor.inputs))
        self.outputs = tuple(map(_port, self._executor.outputs))

    def run(self, arrays: list[Array]) -> list[Array]:
        feeds = {
            info.name: array.astype(info.dtype, copy=False)
            for info, array in zip(self._executor.inputs, arrays, strict=True)
        }
        results = self._executor.run(feeds)
        return [results[port.name] for port in self.outputs]


@cache
def load(path: str) -> OnnxGraph:
    """The graph in an ONNX file."""
    return OnnxGraph(Path(path))


def _port(info: object) -> Port:
    name, shape, dtype = info.name, info.shape, np.dtype(info.dtype)  # type: ignore[attr-defined]
    dims = tuple(axis if isinstance(axis, int) else -1 for axis in shape)
    return Port(name, dims, np.dtype(np.int32) if dtype == np.int64 else dtype)
