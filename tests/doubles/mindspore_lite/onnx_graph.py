"""A graph of the exporter as the stand-in runs it: the reference executor behind ports."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from q35chat.vision.geometry import geometry
from q35export.ascend.reference import GraphExecutor
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
        return [results[info.name] for info in self._executor.outputs]


class Renamed(OnnxGraph):
    """A graph whose tensors kept their order, not their names."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.inputs, self.outputs = (
            tuple(Port(f"{side}_{at}", port.shape, port.dtype) for at, port in enumerate(ports))
            for side, ports in (("in", self.inputs), ("out", self.outputs))
        )


class AllTokenLogits(Renamed):
    """As the reference scripts export a prefill: logits of every token, by names of their own, and
    states that padding spoils."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        logits, *states = self.outputs
        every = Port(logits.name, (1, -1, logits.shape[-1]), logits.dtype)
        self.outputs = (every, *states)

    def run(self, arrays: list[Array]) -> list[Array]:
        last, *states = super().run(arrays)
        ids, mask = arrays[0], arrays[1]
        if not mask.all():
            states = [np.full_like(state, np.nan) for state in states]  # padding goes into them
        logits = np.full((1, ids.shape[1], last.shape[-1]), -1, last.dtype)
        logits[0, int(mask.sum()) - 1] = last[0, 0]
        return [logits, *states]


class SquareTower(OnnxGraph):
    """As the reference scripts export a vision tower: pixels of one square picture, whose geometry
    is built in. `grid` is its side in patches, `table` that of the learned positions."""

    def __init__(self, path: Path, grid: int, table: int) -> None:
        super().__init__(path)
        pixels, rows = self.inputs[0], self.outputs[0]
        count, merge = grid**2, 2
        place = geometry(grid, grid, table, merge)
        self._built_in = {
            "position_index": place.position_index,
            "position_weight": place.position_weight,
            "patch_position": place.patch_position,
            "patch_mask": np.ones((1, count)),
        }
        self.inputs = (Port(pixels.name, (count, pixels.shape[1]), pixels.dtype),)
        self.outputs = (Port(rows.name, (count // merge**2, rows.shape[1]), rows.dtype),)

    def run(self, arrays: list[Array]) -> list[Array]:
        feeds = {"pixel_values": arrays[0], **self._built_in}
        ordered = [np.asarray(feeds[info.name]) for info in self._executor.inputs]
        return super().run(ordered)


@cache
def load_renamed(path: str) -> Renamed:
    """The graph in an ONNX file, without its names."""
    return Renamed(Path(path))


@cache
def load_square_tower(path: str, grid: int, table: int) -> SquareTower:
    """The vision graph in an ONNX file, for one square picture."""
    return SquareTower(Path(path), grid, table)


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
