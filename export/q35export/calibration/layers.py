"""One decoder layer as a graph of its own, run over the calibration text.

Owns how a layer is run and what is seen of it; knows nothing of rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort

from q35export.blocks.context import Context
from q35export.blocks.decoder import decoder_layers
from q35export.blocks.full_attention import Positions
from q35export.blocks.linear_attention import LinearState
from q35export.blocks.rotary import rotary_tables
from q35export.config import TextConfig
from q35export.graph import Graph
from q35export.inventory import Inventory
from q35export.matrix import Float32, Matrix, TensorSource
from q35export.precision import PrecisionPlan, Quantisation, StoredAs
from q35export.quantize import BlockFormat
from q35export.targets.cpu import OPSET, CpuTarget
from q35export.weights import FileSink, WeightSink

Int64 = npt.NDArray[np.int64]
FLOAT, INT32, INT64 = ir.DataType.FLOAT, ir.DataType.INT32, ir.DataType.INT64
_GRAPH, _WEIGHTS = "layer.onnx", "layer.bin"


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """A matrix that is to be quantised: its name in the graph, its weights, unread, and its
    format."""

    name: str
    weights: Matrix
    fmt: BlockFormat

    @property
    def size(self) -> int:
        """Bytes once it is rounded."""
        return self.fmt.size(self.weights.n, self.weights.k)


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What one window made of a layer: its output `[T, H]`, and the input `[T, K]` of each matrix
    by the matrix's name; without taps there are none."""

    hidden: Float32
    inputs: dict[str, Float32]


class TappingTarget(CpuTarget):
    """Remembers what each projection multiplies that is to be quantised; multiplies in FP32 by
    those that are not `stored` yet."""

    def __init__(self, graph: Graph, plan: PrecisionPlan, stored: Mapping[str, StoredAs]) -> None:
        super().__init__(graph, stored)
        self._plan = plan
        self.inputs: dict[str, ir.Value] = {}
        self.projections: list[Projection] = []

    def project(
        self,
        x: ir.Value,
        name: str,
        weights: Matrix,
        quantised: Quantisation | None,
        bias: Float32 | None = None,
    ) -> ir.Value:
        """As every projection."""
        full = self.graph.scoped(name)
        if quantised is not None:
            self.inputs[full] = x
            fmt = self._plan.format_of(full, weights.n, weights.k, quantised)
            self.projections.append(Projection(full, weights, fmt))
        stored = quantised if full in self.matrices else None
        return super().project(x, name, weights, stored, bias)


def projections(config: TextConfig, plan: PrecisionPlan, index: int) -> list[Projection]:
    """The matrices of a layer that are to be quantised, by their shapes alone."""
    graph = Graph("layer", OPSET, WeightSink())
    target = TappingTarget(graph, plan, {})
    _build(Context(graph, target, Inventory(), plan), config, index, longest=1)
    return target.projections


class Layer:
    """Layer `index` of the decoder, its weights read from `source` and kept in `folder`.

    The matrices that are `stored` are multiplied so, the others in FP32. With `taps` a run tells
    the inputs of its matrices. A window has at most `longest` tokens.
    """

    def __init__(
        self,
        folder: Path,
        config: TextConfig,
        source: TensorSource,
        plan: PrecisionPlan,
        index: int,
        *,
        longest: int,
        stored: Mapping[str, StoredAs] | None = None,
        taps: bool = False,
    ) -> None:
        self._config = config
        with FileSink(folder / _WEIGHTS, lambda _: None) as sink:
            graph = Graph("layer", OPSET, sink)
            target = TappingTarget(graph, plan, stored or {})
            _build(Context(graph, target, source, plan), config, index, longest)
            self._names = list(target.inputs) if taps else []
            for name in self._names:
                graph.output(target.inputs[name], f"input of {name}", FLOAT, (1, "T", "K"))
            ir.save(graph.model({}), folder / _GRAPH)
        self.projections = tuple(target.projections)
        self._session = opened(folder / _GRAPH)
        self._inputs = [value.name for value in self._session.get_inputs()]

    def run(self, hidden: Float32, positions: Int64) -> Seen:
        """One window: hidden states `[T, H]` at mRoPE positions `[3, T]`, with no past."""
        feeds = {
            "hidden": hidden[None],
            "position_ids": positions[:, None],
            "length": np.array([len(hidden)], np.int32),
            **{name: np.zeros(shape, np.float32) for name, shape in _pasts(self._config).items()},
        }
        found, *inputs = self._session.run(None, {name: feeds[name] for name in self._inputs})
        rows = (np.asarray(one, np.float32)[0] for one in inputs)
        return Seen(np.asarray(found, np.float32)[0], dict(zip(self._names, rows, strict=True)))


def opened(graph: Path) -> ort.InferenceSession:
    """A session whose threads do not spin: between two runs the processors are wanted for other
    things."""
    options = ort.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])


def _build(ctx: Context, config: TextConfig, index: int, longest: int) -> None:
    """Declare the inputs, the layer and its output."""
    graph = ctx.graph
    hidden = graph.input("hidden", FLOAT, (1, "T", config.hidden_size))
    state: LinearState | None = None
    positions = Positions((), ())
    if config.layer_types[index] == "linear_attention":
        conv, recurrent = (graph.input(*declared) for declared in _declared(config))
        state = LinearState(conv, recurrent)
    else:
        places = graph.input("position_ids", INT64, (3, 1, "T"))
        length = graph.input("length", INT32, (1,))
        tables = rotary_tables(config.rope.theta, config.rope.dim, longest)
        last = graph.op("Sub", length, graph.constant(np.array([1], np.int32)))
        positions = Positions(
            (places, *map(graph.weight, ("cos", "sin"), tables)),
            (last, graph.op("Squeeze", length, graph.ints(0))),
        )
    found, _ = decoder_layers(ctx, config, hidden, (state,), positions, first=index)
    graph.output(found, "hidden_after", FLOAT, (1, "T", config.hidden_size))


def _declared(config: TextConfig) -> Iterator[tuple[str, ir.DataType, tuple[int, ...]]]:
    for name, shape in _pasts(config).items():
        yield name, FLOAT, shape


def _pasts(config: TextConfig) -> dict[str, tuple[int, ...]]:
    """The states of a linear layer, which start as zeros, and their shapes."""
    heads = (config.linear_value_heads, config.linear_key_dim, config.linear_value_dim)
    return {
        "past_conv": (1, config.conv_kernel - 1, config.conv_channels),
        "past_recurrent": (1, *heads),
    }
