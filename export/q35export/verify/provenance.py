"""Which row of a bundle's matrix is which row of the checkpoint's.

Asked of the exporter itself: the graph is built once more over a source whose rows carry their
tensor's number and their own, so that stacking and reordering need no second description here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from q35export.config import ModelConfig
from q35export.graphs.text import build_text_graph
from q35export.graphs.vision import build_vision_graph
from q35export.matrix import Float32
from q35export.precision import FLOAT_PLAN
from q35export.tensors import ShapeSource, expected_tensors
from q35export.weights import Pieces, Stored

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """For each row of a stored matrix: the checkpoint's tensor and the row in it."""

    tensors: tuple[str, ...]
    tensor: Int64
    row: Int64


def origins(config: ModelConfig, graph: str) -> dict[str, Origin]:
    """The origin of every matrix of the graph "text" or "vision", by initializer name."""
    shapes = expected_tensors(config, graph)
    names = tuple(shapes)
    sink = _TagReader()
    source = _TagSource(shapes)
    if graph == "text":
        build_text_graph(config, source, sink, capacity=1, plan=FLOAT_PLAN)
    else:
        build_vision_graph(config, source, sink, plan=FLOAT_PLAN)
    return {name: Origin(names, tags[:, 0], tags[:, 1]) for name, tags in sink.matrices.items()}


class _TagSource(ShapeSource):
    """Rows begin with their tensor's number and their own; all else is zero."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        super().__init__(shapes)
        self._numbers = {name: number for number, name in enumerate(shapes)}

    def rows(self, name: str, start: int, stop: int) -> Float32:
        rows = super().rows(name, start, stop)
        flat = rows.reshape(stop - start, -1)
        flat[:, 0] = self._numbers[name]
        flat[:, 1] = np.arange(start, stop)
        return rows


class _TagReader:
    """A sink that keeps the first two columns of every matrix and nothing else."""

    def __init__(self) -> None:
        self.matrices: dict[str, Int64] = {}
        self._stored: list[Int64 | None] = []

    def store(self, length: int, pieces: Pieces) -> Stored:
        tags = [piece[:, :2].astype(np.int64) for piece in pieces() if piece.ndim == 2]
        self._stored.append(np.concatenate(tags) if tags else None)
        return Stored(len(self._stored) - 1, length)

    def tensor(
        self, name: str, stored: Stored, shape: tuple[int, ...], dtype: ir.DataType
    ) -> ir.ExternalTensor:
        tags = self._stored[stored.offset]
        if tags is not None:
            self.matrices[name] = tags
        return ir.ExternalTensor("none", 0, 0, dtype, shape=ir.Shape(shape), name=name)
