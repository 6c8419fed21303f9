"""Exported graphs as ONNX's own reference evaluator runs them.

What is no standard operator is run by who defines it: `com.microsoft` by ONNX Runtime, one node at
a time, and the NPU's kernels by their numpy references.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from q35export.ascend.reference.contracts import read_custom
from q35export.ascend.reference.kernels import run_kernel

MS = "com.microsoft"
SIZES = {"T": 6, "N": 1, "M": 2, "P": 16, "S": 0, "B": 0, "R": 0, "past": 5, "past + 1": 6}
_FILLED = 5  # slots before the call
_PICTURE = slice(2, 4)  # tokens of a call


class Custom(OpRun):
    """A kernel of the NPU."""

    def _run(self, *inputs: Any, **_: Any) -> tuple[Any, ...]:
        return tuple(run_kernel(read_custom(self.onnx_node), list(inputs)))


def _run_in_onnxruntime(self: Any, *inputs: Any, **_: Any) -> tuple[Any, ...]:
    node = onnx.NodeProto()
    node.CopyFrom(self.onnx_node)
    given = {f"in_{place}": value for place, value in enumerate(inputs) if value is not None}
    names = [name if (name := f"in_{place}") in given else "" for place in range(len(inputs))]
    del node.input[:]
    node.input.extend(names)
    infos = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in given.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    opsets = [onnx.helper.make_opsetid("", 23), onnx.helper.make_opsetid(MS, 1)]
    graph = onnx.helper.make_graph([node], "node", infos, outputs)
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=11)
    session = ort.InferenceSession(model.SerializeToString())
    found = dict(zip([each.name for each in outputs], session.run(None, given), strict=True))
    return tuple(found.get(name) for name in node.output)


def _operators(model: onnx.ModelProto) -> list[Any]:
    kinds = {(node.domain, node.op_type) for node in _nodes(model.graph) if node.domain == MS}
    members = {"_run": _run_in_onnxruntime}
    return [Custom] + [
        type(kind, (OpRun,), members | {"op_domain": domain}) for domain, kind in sorted(kinds)
    ]


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Those of its branches, too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from _nodes(attribute.g)


def evaluated(path: Path, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of the graph by name."""
    model = onnx.load(path)
    evaluator = ReferenceEvaluator(model, new_ops=_operators(model))
    names = [output.name for output in model.graph.output]
    return dict(zip(names, evaluator.run(None, dict(feeds)), strict=True))


def check_in_full(path: Path) -> None:
    """ONNX's checker with types and shapes inferred; what it cannot know, as operators of a domain
    of their own."""
    model = onnx.load(path)
    for node in model.graph.node:
        if node.op_type == "Custom":
            node.domain = "other"
    model.opset_import.append(onnx.helper.make_opsetid("other", 1))
    onnx.checker.check_model(model, full_check=True)


def some_feeds(
    path: Path, config: Any, *, seed: int = 0, sizes: Mapping[str, int] = SIZES
) -> dict[str, Any]:
    """Inputs as a chat would give them: a few tokens, two of them of a picture, behind a few."""
    rng = np.random.default_rng(seed)
    return dict(_some_feeds(onnx.load(path, load_external_data=False), config, rng, sizes))


def _some_feeds(
    model: onnx.ModelProto, config: Any, rng: np.random.Generator, sizes: Mapping[str, int]
) -> Iterator[tuple[str, Any]]:
    for info in model.graph.input:
        kind = info.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        dims = [dim.dim_param or dim.dim_value for dim in kind.shape.dim]
        shape = tuple(sizes.get(dim, dim) for dim in dims)
        if info.name == "attention_mask":
            lit = (np.arange(shape[-1]) < _FILLED + sizes["T"])[None]
            yield info.name, lit.astype(dtype)
        else:
            yield info.name, _value(info.name, shape, config, rng).astype(dtype)


def _value(name: str, shape: tuple[Any, ...], config: Any, rng: np.random.Generator) -> Any:
    if name == "input_ids":
        ids = rng.integers(0, config.image_token_id, shape)
        ids[:, _PICTURE] = config.image_token_id
        return ids
    side = config.tower.grid_side
    makers: dict[str, Callable[[], Any]] = {
        "position_ids": lambda: np.broadcast_to(np.arange(shape[-1]) + _FILLED, shape),
        "past_len": lambda: np.array([_FILLED]),
        "logits_count": lambda: np.ones(shape),
        "patch_mask": lambda: np.ones(shape),
        "position_index": lambda: rng.integers(0, side**2, shape),
        "patch_position": lambda: rng.integers(0, side, shape),
    }
    return makers.get(name, lambda: rng.normal(size=shape))()
