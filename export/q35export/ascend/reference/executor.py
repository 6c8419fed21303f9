"""Runs one exported graph: stretches of standard nodes in ONNX Runtime, Custom nodes in between.

Knows no model. A graph is refused when it is opened if it holds an operator that the 310P's
converter cannot read, another opset, or a Custom node that its kernel would not recognise.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import onnxruntime as ort

from q35chat.errors import ExportError
from q35export.ascend.reference.contracts import (
    CustomNode,
    TensorInfo,
    check_arrays,
    read_custom,
    tensor_infos,
)
from q35export.ascend.reference.kernels import run_kernel
from q35export.ascend.targets.standard import OPSET, readable_operators
from q35export.graph import Array

_IR_VERSION = 10


@dataclass
class _Stage:
    """Standard nodes that run together, then the Custom nodes that wait for them."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    customs: list[CustomNode] = field(default_factory=list)
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    session: ort.InferenceSession | None = None


class GraphExecutor:
    """One opened graph. `run` may be called from any thread, one at a time.

    `threads` is the number of threads of ONNX Runtime; `rounds_inputs` as `run_kernel` has it.
    """

    def __init__(self, path: Path, *, threads: int = 1, rounds_inputs: bool = True) -> None:
        model = onnx.load(str(path), load_external_data=False)
        _check_opset(model)
        self.path = path
        self.metadata = {pair.key: pair.value for pair in model.metadata_props}
        self.inputs: tuple[TensorInfo, ...] = tensor_infos(model.graph.input)
        self.outputs: tuple[TensorInfo, ...] = tensor_infos(model.graph.output)
        self._weights = {tensor.name: tensor for tensor in model.graph.initializer}
        self._stages = _stages(model.graph, self._weights.keys())
        self._threads = threads
        self._rounds_inputs = rounds_inputs
        self._lock = threading.Lock()

    @property
    def custom_nodes(self) -> tuple[CustomNode, ...]:
        """All Custom nodes, in the order they run."""
        return tuple(node for stage in self._stages for node in stage.customs)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """All outputs by name. Raises ExportError for feeds or operands that do not fit."""
        check_arrays(self.inputs, feeds)
        with self._lock:
            values = dict(feeds)
            for stage in self._stages:
                self._run_stage(stage, values)
        results = {info.name: values[info.name] for info in self.outputs}
        check_arrays(self.outputs, results)
        return results

    def _run_stage(self, stage: _Stage, values: dict[str, Array]) -> None:
        if stage.nodes:
            if stage.session is None:
                stage.session = self._open(stage, values)
            feeds = {name: values[name] for name in stage.inputs}
            results = stage.session.run(list(stage.outputs), feeds)
            values.update(zip(stage.outputs, results, strict=True))
        for node in stage.customs:
            operands = [
                values[name] if name in values else self._weight(name) for name in node.inputs
            ]
            results = run_kernel(node, operands, rounds_inputs=self._rounds_inputs)
            values.update(zip(node.outputs, results, strict=True))

    def _weight(self, name: str) -> Array:
        return onnx.numpy_helper.to_array(self._weights[name], str(self.path.parent))

    def _open(self, stage: _Stage, values: Mapping[str, Array]) -> ort.InferenceSession:
        """A session over the stage's nodes; its inputs get the dtypes that have arrived."""
        used = {name for node in stage.nodes for name in node.input}
        graph = onnx.helper.make_graph(
            stage.nodes,
            "stage",
            [
                onnx.helper.make_tensor_value_info(
                    name, onnx.helper.np_dtype_to_tensor_dtype(values[name].dtype), None
                )
                for name in stage.inputs
            ],
            [onnx.ValueInfoProto(name=name) for name in stage.outputs],
            [tensor for name, tensor in self._weights.items() if name in used],
        )
        opsets = [onnx.helper.make_opsetid("", OPSET)]
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = self._threads
        options.log_severity_level = 3
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(self.path.parent)
        )
        try:
            return ort.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # ONNX Runtime raises a class of its own for each status
            reason = str(error).splitlines()[0]
            raise ExportError(f"{self.path} cannot be run: {reason}; export it again") from error


def _check_opset(model: onnx.ModelProto) -> None:
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    if opsets != {"": OPSET}:
        raise ExportError(f"the graph must use opset {OPSET} and no other domain, found {opsets}")


def _stages(graph: onnx.GraphProto, weights: Collection[str]) -> list[_Stage]:
    """Standard nodes as early as their inputs allow; a Custom node ends the stage it is in."""
    known = readable_operators()
    produced: dict[str, tuple[int, bool]] = {}
    stages: list[_Stage] = []
    for node in graph.node:
        if node.domain or node.op_type not in known:
            raise ExportError(
                f"node {node.name}: the 310P's converter does not know the operator "
                f"{node.op_type} of domain {node.domain or 'onnx'}"
            )
        custom = node.op_type == "Custom"
        sources = [produced[name] for name in node.input if name in produced]
        stage = max((at + (late and not custom) for at, late in sources), default=0)
        while len(stages) <= stage:
            stages.append(_Stage())
        if custom:
            stages[stage].customs.append(read_custom(node))
        else:
            stages[stage].nodes.append(node)
        produced.update(dict.fromkeys(node.output, (stage, custom)))
    _connect(stages, {value.name for value in graph.output}, weights)
    return stages


def _connect(stages: list[_Stage], results: set[str], weights: Collection[str]) -> None:
    """Find what each stage takes from outside, and what of it is used outside."""
    wanted = set(results)
    for stage in reversed(stages):
        wanted.update(name for node in stage.customs for name in node.inputs)
        made = {name for node in stage.nodes for name in node.output}
        stage.outputs = tuple(sorted(made & wanted))
        taken = {name for node in stage.nodes for name in node.input if name} - made
        stage.inputs = tuple(sorted(taken.difference(weights)))
        wanted |= taken
