"""Experts as checkpoints store them one by one, and routing seen in an exported graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from safetensors.numpy import load_file, save_file

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
        value.name: np.zeros(value.shape, np.float32)
        for value in session.get_inputs()
        if value.name.startswith("past_")
    }
    found = session.run(names, {**feeds, **states})
    return [np.asarray(scores, np.float32) for scores in found]
