"""Experts as checkpoints store them, as the runtime multiplies by them, and their routing seen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file, save_file

from q35export.quantize import BlockFormat, quantize

Floats = npt.NDArray[np.float32]
KINDS = {"MoE", "QMoE"}


def store_one_by_one(checkpoint: Path) -> Path:
    """Store every expert of a single-file checkpoint as tensors of its own."""
    path = checkpoint / "model.safetensors"
    stored: dict[str, npt.NDArray[np.float32]] = {}
    for name, values in load_file(path).items():
        root, _, kind = name.rpartition(".")
        if kind == "gate_up_proj":
            for expert, both in enumerate(values):
                gate, up = np.split(both, 2)
                stored[f"{root}.{expert}.gate_proj.weight"] = np.ascontiguousarray(gate)
                stored[f"{root}.{expert}.up_proj.weight"] = np.ascontiguousarray(up)
        elif kind == "down_proj":
            for expert, down in enumerate(values):
                stored[f"{root}.{expert}.down_proj.weight"] = np.ascontiguousarray(down)
        else:
            stored[name] = values
    save_file(stored, path)
    return checkpoint


def router_scores(graph: Path, feeds: Mapping[str, npt.NDArray[np.generic]]) -> list[Floats]:
    """What the router of each layer says of the tokens in `feeds`, `[T, E]`; states are empty."""
    model = onnx.load(graph, load_external_data=False)
    names = [node.input[1] for node in model.graph.node if node.op_type in KINDS]
    for name in names:
        model.graph.output.append(
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        )
    watched = graph.with_name("watched.onnx")
    onnx.save(model, watched)
    session = ort.InferenceSession(str(watched), providers=["CPUExecutionProvider"])
    states = {
        value.name: np.zeros(
            [0 if isinstance(axis, str) else axis for axis in value.shape], np.float32
        )
        for value in session.get_inputs()
        if value.name.startswith(("past_", "filled_"))
    }
    found = session.run(names, {**feeds, **states})
    return [np.asarray(scores, np.float32) for scores in found]


def run_experts(
    x: Floats,
    scores: Floats,
    gate_up: Floats,
    down: Floats,
    *,
    chosen: int,
    normalised: bool = True,
    fmt: BlockFormat | None = None,
) -> Floats:
    """The runtime's own sum over experts `[E, 2I, H]`, gate and up in turn, and `[E, H, I]`."""
    names = ["x", "scores", "gate_up", "", "down"]
    given: dict[str, npt.NDArray[Any]] = {"gate_up": gate_up, "down": down}
    options: dict[str, Any] = {}
    if fmt is not None:
        names = ["x", "scores", "gate_up", "gate_up.scales", "", "down", "down.scales"]
        for name, weights in (("gate_up", gate_up), ("down", down)):
            codes, scales = quantize(weights.reshape(-1, weights.shape[-1]), fmt)
            given[name] = codes.reshape(*weights.shape[:2], -1)
            given[f"{name}.scales"] = scales.reshape(*weights.shape[:2], -1)
        options = {
            "expert_weight_bits": fmt.bits,
            "block_size": fmt.block,
            "accuracy_level": fmt.accuracy_level,
            "weights_prepacked": 0,
        }
    node = helper.make_node(
        "QMoE" if fmt else "MoE",
        names,
        ["y"],
        domain="com.microsoft",
        k=chosen,
        normalize_routing_weights=int(normalised),
        activation_type="swiglu",
        swiglu_fusion=1,
        activation_alpha=1.0,
        activation_beta=0.0,
        **options,
    )
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, values.shape)
        for name, values in (("x", x), ("scores", scores))
    ]
    graph = helper.make_graph(
        [node],
        "experts",
        infos,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)],
        [numpy_helper.from_array(values, name) for name, values in given.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = ort.InferenceSession(model.SerializeToString())
    return np.asarray(session.run(None, {"x": x, "scores": scores})[0], np.float32)
