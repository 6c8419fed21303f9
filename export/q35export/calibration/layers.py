"""One decoder layer as a graph of its own, run over the calibration text.

Owns how a layer is run and what is seen of it; knows nothing of rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort

from q35export.blocks.context import Context
from q35export.blocks.decoder import decoder_layers
from q35export.blocks.full_attention import Positions
from q35export.blocks.linear_attention import LinearState
from q35export.blocks.rotary import rotary_tables
from q35export.calibration.mixture import Mixture, Routed
from q35export.config import TextConfig
from q35export.graph import Graph
from q35export.int8_rows import LARGEST, rounded_matrix
from q35export.inventory import Inventory
from q35export.matrix import Float32, Matrix, TensorSource
from q35export.precision import PrecisionPlan, Quantisation, StoredAs
from q35export.quantize import BlockFormat
from q35export.targets.base import Routing
from q35export.targets.cpu import OPSET, CpuTarget
from q35export.targets.cpu_weights import DOWN, GATE_UP, experts_format
from q35export.weights import MemorySink, WeightSink

Int64 = npt.NDArray[np.int64]
FLOAT, INT32, INT64 = ir.DataType.FLOAT, ir.DataType.INT32, ir.DataType.INT64
_ROUTED = ("input of experts", "scores")


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """A matrix that is to be quantised, or those of `experts` one below the other: its name in the
    graph, its weights, unread, and its format; `fine` where what is left over is stored, too."""

    name: str
    weights: Matrix
    fmt: BlockFormat
    experts: int = 0
    fine: bool = False

    @property
    def size(self) -> int:
        """Bytes of the codes that are multiplied."""
        return self.fmt.size(self.weights.n, self.weights.k)

    @property
    def stored(self) -> int:
        """Bytes of all its codes."""
        return self.size * (1 + self.fine)


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What one window made of a layer: its output `[T, H]`, and the input `[T, K]` of each matrix
    by the matrix's name; without taps there are none. Experts are left out of the output; `routed`
    is what they are given."""

    hidden: Float32
    inputs: dict[str, Float32]
    routed: Routed | None = None


class TappingTarget(CpuTarget):
    """Remembers what each projection multiplies that is to be quantised; multiplies in FP32 by
    those that are not `stored` yet, and as an NPU does in int8 where `steps` says so. Experts are
    remembered and left out: their sum is added to the layer's output afterwards."""

    def __init__(
        self,
        graph: Graph,
        plan: PrecisionPlan,
        stored: Mapping[str, StoredAs],
        steps: Mapping[str, float],
    ) -> None:
        super().__init__(graph, stored)
        self._plan, self._steps = plan, steps
        self.inputs: dict[str, ir.Value] = {}
        self.projections: list[Projection] = []
        self.routed: tuple[ir.Value, ir.Value] | None = None
        self.mixture: tuple[Projection, Projection] | None = None

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
        if step := self._steps.get(full):
            x, weights = self._rounded(x, step), rounded_matrix(weights, step)
        stored = quantised if full in self.matrices else None
        return super().project(x, name, weights, stored, bias)

    def _rounded(self, x: ir.Value, step: float) -> ir.Value:
        """`x` as `int8_rows.rounded_inputs` has it."""
        op, numbers = self.graph.op, (1 / step, -LARGEST - 1, LARGEST, step)
        factor, least, most, back = (
            self.graph.constant(np.array(number, np.float32)) for number in numbers
        )
        return op("Mul", op("Clip", op("Round", op("Mul", x, factor)), least, most), back)

    def experts(
        self,
        x: ir.Value,
        routing: Routing,
        gate_up: Matrix,
        down: Matrix,
        quantised: Quantisation | None,
    ) -> ir.Value:
        """Nothing, so that what the experts make can be added to the layer's output."""
        assert quantised is not None
        fmt = experts_format(quantised, gate_up, down)
        names = (self.graph.scoped(name) for name in (GATE_UP, DOWN))
        first, second = (
            Projection(name, weights, fmt, routing.count)
            for name, weights in zip(names, (gate_up, down), strict=True)
        )
        self.inputs[first.name] = x
        self.projections += first, second
        self.mixture, self.routed = (first, second), (x, routing.scores)
        return self.graph.op("Mul", x, self.graph.constant(np.array(0, np.float32)))


def projections(config: TextConfig, plan: PrecisionPlan, index: int) -> list[Projection]:
    """The matrices of a layer that are to be quantised, by their shapes alone."""
    graph = Graph("layer", OPSET, WeightSink())
    target = TappingTarget(graph, plan, {}, {})
    _build(Context(graph, target, Inventory(), plan), config, index, longest=1)
    return target.projections


def layer_matrices(config: TextConfig, plan: PrecisionPlan) -> list[Projection]:
    """Those of all layers, in their order."""
    layers = range(len(config.layer_types))
    return [one for index in layers for one in projections(config, plan, index)]


class Layer:
    """Layer `index` of the decoder, its weights read from `source`.

    The matrices that are `stored` are multiplied so, those that `steps` names as an NPU multiplies
    in int8, the others in FP32. With `taps` a run tells
    the inputs of its matrices. A window has at most `longest` tokens.
    """

    def __init__(
        self,
        config: TextConfig,
        source: TensorSource,
        plan: PrecisionPlan,
        index: int,
        *,
        longest: int,
        stored: Mapping[str, StoredAs] | None = None,
        steps: Mapping[str, float] | None = None,
        taps: bool = False,
    ) -> None:
        self._config = config
        sink = MemorySink("layer.bin")
        graph = Graph("layer", OPSET, sink)
        target = TappingTarget(graph, plan, stored or {}, steps or {})
        _build(Context(graph, target, source, plan), config, index, longest)
        self._names = list(target.inputs) if taps else []
        self.mixture = _mixture(config, target, stored or {})
        told = [(f"input of {name}", target.inputs[name]) for name in self._names]
        if target.routed:
            told += zip(_ROUTED, target.routed, strict=True)
        same = {id(value): name for name, value in told}
        for name, value in told:
            # one tensor that several read leaves the graph under each of their names
            own = value if same[id(value)] == name else graph.op("Identity", value)
            graph.output(own, name, FLOAT, (1, "T", "K"))
        self.projections = tuple(target.projections)
        self._session = opened(graph.model({}), sink)
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
        rows = [np.asarray(one, np.float32)[0] for one in inputs]
        routed = Routed(*rows[len(self._names) :]) if self.mixture else None
        told = dict(zip(self._names, rows, strict=False))
        return Seen(np.asarray(found, np.float32)[0], told, routed)

    def is_last_of_experts(self, one: Projection) -> bool:
        """Whether each expert's matrix has inputs of its own."""
        return bool(one.experts) and one.name not in self._names

    def finished(self, seen: Sequence[Seen]) -> list[Float32]:
        """The outputs `[T, H]` of windows that were run, with what the experts make of all of them
        at once."""
        if self.mixture is None or not seen:
            return [one.hidden for one in seen]
        sums = self.mixture.run(together(seen))
        ends = np.cumsum([len(one.hidden) for one in seen])[:-1]
        pairs = zip(seen, np.split(sums, ends), strict=True)
        return [one.hidden + added for one, added in pairs]


def together(seen: Sequence[Seen]) -> Routed:
    """What the experts are given of several windows."""
    found = [one.routed for one in seen if one.routed]
    return Routed(
        np.concatenate([one.rows for one in found]), np.concatenate([one.scores for one in found])
    )


def _mixture(
    config: TextConfig, target: TappingTarget, stored: Mapping[str, StoredAs]
) -> Mixture | None:
    if config.experts is None or target.mixture is None:
        return None
    gate_up, down = ((one.name, one.weights) for one in target.mixture)
    return Mixture(config.experts, gate_up, down, stored)


def opened(graph: ir.Model, weights: MemorySink) -> ort.InferenceSession:
    """A session whose threads do not spin: between two runs the processors are wanted for other
    things. It has copies of its weights."""
    options = ort.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    with weights.contents() as contents:
        options.add_external_initializers_from_files_in_memory(
            [weights.location], [contents], [len(contents)]
        )
        proto = ir.to_proto(graph).SerializeToString()
        return ort.InferenceSession(proto, options, providers=["CPUExecutionProvider"])


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
