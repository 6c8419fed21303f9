"""Custom nodes as plain values, for golden files: `python -m tests.ascend.nodes` rewrites them."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from q35export.ascend.forms import KernelForms, rewrite
from q35export.ascend.graphs import AscendOptions
from q35export.ascend.reference import GraphExecutor
from q35export.calibration.int8_steps import planned_steps
from q35export.config import load_config
from q35export.precision import PrecisionPlan, precision_plan
from tests.support.ascend import export_ascend
from tests.support.checkpoints import make_checkpoint

GOLDEN = Path(__file__).parents[1] / "golden" / "ascend"
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "vision": ("vision", {}),
    "prefill": ("prefill", {}),
    "prefill-stateless": ("prefill", {"stateless_prefill": True}),
    "prefill-unfused": ("prefill", {"fused_prefill": False}),
    "decode": ("decode", {}),
    "decode-unfused": ("decode", {"fused_decode": False}),
    "prefill-several": ("prefill", {"gears": (1, 32), "step_tokens": 4}),
    "decode-several": ("decode", {"step_tokens": 4}),
    "prefill-int8": ("prefill", {"w8a8": True}),
    "decode-int8": ("decode", {"w8a8": True}),
}
_STEP = 0.03125


REWRITTEN = "decode-rewritten"
"""The decode graph in all other forms of its kernels."""


def dump(graph: GraphExecutor) -> dict[str, Any]:
    """Boundary, metadata, operators by count, and the first node of every kernel with all of its
    attributes and their types."""
    proto = onnx.load(graph.path, load_external_data=False)
    customs: dict[str, Any] = {}
    for node in proto.graph.node:
        attributes = {a.name: a for a in node.attribute}
        if node.op_type == "Custom":
            customs.setdefault(attributes["type"].s.decode(), _attributes(node))
    return {
        "metadata": graph.metadata,
        "inputs": [f"{t.name} {t.dtype} {list(t.shape)}" for t in graph.inputs],
        "outputs": [f"{t.name} {t.dtype} {list(t.shape)}" for t in graph.outputs],
        "operators": dict(sorted(Counter(node.op_type for node in proto.graph.node).items())),
        "custom": customs,
    }


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    names = onnx.AttributeProto.AttributeType
    found: dict[str, Any] = {}
    for attribute in sorted(node.attribute, key=lambda a: a.name):
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            value = value.decode()
        elif attribute.type == onnx.AttributeProto.STRINGS:
            value = [text.decode() for text in value]
        elif isinstance(value, float):
            value = round(value, 8)
        found[attribute.name] = {"type": names.Name(attribute.type), "value": value}
    return found


def graphs_of(folder: Path) -> dict[str, GraphExecutor]:
    """One small graph of each kind, and one rewritten."""
    checkpoint = make_checkpoint(folder / "checkpoint", "plain", seed=5)
    graphs = {}
    for name, (component, options) in KINDS.items():
        settings = AscendOptions(capacity=64, image_gears=(4, 16), **options)
        plan = _plan(checkpoint) if settings.w8a8 else None
        exported = export_ascend(checkpoint, folder / name, settings, (component,), plan)
        graphs[name] = exported.graphs[component]
    path = graphs["decode"].path
    model = ir.load(path)
    rewrite(model, KernelForms.parse("recurrent-310p,ordered-inputs,selected-cache"))
    ir.save(model, path.with_name("kernels.onnx"))
    graphs[REWRITTEN] = GraphExecutor(path.with_name("kernels.onnx"))
    return graphs


def _plan(checkpoint: Path) -> PrecisionPlan:
    """All matrices in int8 that there will be at least, with a step of no meaning."""
    plan = replace(precision_plan("w8a8"), turned=True)
    names = planned_steps(load_config(checkpoint).text, plan)
    return replace(plan, steps=dict.fromkeys(names, _STEP))


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        for kind, executor in graphs_of(Path(name)).items():
            text = json.dumps(dump(executor), indent=1) + "\n"
            (GOLDEN / f"{kind}.json").write_text(text, encoding="utf-8")
