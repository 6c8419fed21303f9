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


class AllTokenLogits(OnnxGraph):
    """As the reference scripts export a prefill: logits of every token, by names of their own, and
    states that padding spoils."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        logits, *states = self.outputs
        self.inputs = tuple(
            Port(f"in_{at}", port.shape, port.dtype) for at, port in enumerate(self.inputs)
        )
        self.outputs = (
            Port("out_0", (1, -1, logits.shape[-1]), logits.dtype),
            *(Port(f"out_{at}", port.shape, port.dtype) for at, port in enumerate(states, 1)),
        )
        self._names = [info.name for info in self._executor.outputs]

    def run(self, arrays: list[Array]) -> list[Array]:
        feeds = {
            info.name: array.astype(info.dtype, copy=False)
            for info, array in zip(self._executor.inputs, arrays, strict=True)
        }
        results = self._executor.run(feeds)
        last, *states = (results[name] for name in self._names)
        ids, mask = arrays[0], arrays[1]
        if not mask.all():
            states = [np.full_like(state, np.nan) for state in states]  # padding goes into them
        logits = np.full((1, ids.shape[1], last.shape[-1]), -1, last.dtype)
        logits[0, int(mask.sum()) - 1] = last[0, 0]
        return [logits, *states]


@cache
def load_all_tokens(path: str) -> AllTokenLogits:
    """The prefill graph in an ONNX file, with logits of every token."""
    return AllTokenLogits(Path(path))


@cache
def load(path: str) -> OnnxGraph:
    """The graph in an ONNX file."""
    return OnnxGraph(Path(path))


def _port(info: object) -> Port:
    name, shape, dtype = info.name, info.shape, np.dtype(info.dtype)  # type: ignore[attr-defined]
    dims = tuple(axis if isinstance(axis, int) else -1 for axis in shape)
    return Port(name, dims, np.dtype(np.int32) if dtype == np.int64 else dtype)
