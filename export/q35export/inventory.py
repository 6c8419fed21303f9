"""Which tensors a model has, by canonical name: asked of the blocks, which say name and shape where
they use a tensor.

A graph is built over a source that notes what is asked for and reads as zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from q35export.config import ModelConfig
from q35export.graphs.mtp import build_text_and_head
from q35export.graphs.text import build_text_graph
from q35export.graphs.vision import build_vision_graph
from q35export.matrix import MTP, Float32, Shape, TensorSource
from q35export.precision import FLOAT_PLAN
from q35export.weights import WeightSink


class Inventory:
    """A source that notes every tensor of a graph, in order, and reads as zeros.

    For plans, too, which need every size and no weight.
    """

    def __init__(self) -> None:
        self.shapes: dict[str, Shape] = {}

    def expect(self, name: str, shape: Shape) -> None:
        """Note the tensor."""
        self.shapes[name] = shape

    def read(self, name: str) -> Float32:
        """Zeros of the tensor's shape."""
        return np.zeros(self.shapes[name], np.float32)

    def rows(self, name: str, start: int, stop: int) -> Float32:
        """Zeros of the slice's shape."""
        return np.zeros((stop - start, *self.shapes[name][1:]), np.float32)


def build_unquantised(
    config: ModelConfig, component: str, source: TensorSource, sink: WeightSink
) -> None:
    """Build the graphs of a component in FP32, for what `source` and `sink` see of it."""
    if component == "vision":
        build_vision_graph(config, source, sink, plan=FLOAT_PLAN)
    elif component == "mtp":
        build_text_and_head(config, source, sink, capacity=1, plan=FLOAT_PLAN)
    else:
        build_text_graph(config, source, sink, capacity=1, plan=FLOAT_PLAN)


@cache
def expected_tensors(config: ModelConfig, component: str) -> Mapping[str, Shape]:
    """Names and shapes of every tensor that the `component` is built from: the tower's of
    "vision", the further ones of "mtp", the decoder's of any other."""
    source = Inventory()
    build_unquantised(config, component, source, WeightSink())
    wanted = MTP if component == "mtp" else ""
    return {name: shape for name, shape in source.shapes.items() if name.startswith(wanted)}
