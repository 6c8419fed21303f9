"""A graph that says anything but what the kernels' definitions say is refused, by name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

from q35chat.errors import ExportError
from q35export.ascend.reference import GraphExecutor
from tests.ascend.conftest import Export
from tests.support.ascend import Array, AscendChat

Change = Callable[[onnx.NodeProto], None]


def changed(exported: Export, folder: Path, component: str, kind: str, change: Change) -> Path:
    """A copy of the plain graph with the first node of a kernel changed."""
    source = exported("plain").graphs[component].path
    model = onnx.load(source, load_external_data=False)
    for node in model.graph.node:
        if any(a.name == "type" and a.s.decode() == kind for a in node.attribute):
            change(node)
            break
    shutil.copyfile(source.parent / "model.bin", folder / "model.bin")
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def replaced(name: str, value: object) -> Change:
    """Give the attribute another value, of whatever type that is."""

    def change(node: onnx.NodeProto) -> None:
        kept = [attribute for attribute in node.attribute if attribute.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, onnx.helper.make_attribute(name, value)])

    return change


def removed(name: str) -> Change:
    def change(node: onnx.NodeProto) -> None:
        kept = [attribute for attribute in node.attribute if attribute.name != name]
        del node.attribute[:]
        node.attribute.extend(kept)

    return change


def without_last_input(node: onnx.NodeProto) -> None:
    del node.input[-1]


CGDR, RGDR = "ChunkGatedDeltaRule", "RecurrentGatedDeltaRule"
SCATTER, IFA = "Scatter", "IncreFlashAttention"
STATIC = [
    ("prefill", CGDR, replaced("type", "ChunkDelta"), "no kernel is known"),
    ("prefill", CGDR, removed("type"), "no kernel is known"),
    ("prefill", CGDR, replaced("output_num", 1), "output_num is 1, must be 2"),
    ("prefill", CGDR, replaced("dtype", 1), "dtype is 1, must be 10"),
    ("prefill", CGDR, replaced("dtype", 10.0), "is of type FLOAT, the kernel wants INT"),
    ("prefill", CGDR, removed("optional_input_names"), "optional_input_names"),
    ("prefill", CGDR, replaced("chunk_size", 64), "not the kernel's: chunk_size"),
    ("prefill", CGDR, replaced("input_names", ["key", "query"]), "input_names is"),
    ("prefill", CGDR, without_last_input, "takes .*inputs, found"),
    ("decode", RGDR, replaced("output_types", [43, 43]), r"output_types is \[43, 43\]"),
    ("decode", RGDR, replaced("input_index", list(range(9))), "input_index is"),
    ("decode", RGDR, replaced("output_names", ["out", "final"]), "output_names is"),
    ("decode", SCATTER, replaced("axis", 3), "axis is 3, must be 2"),
    ("decode", SCATTER, replaced("reduce", "none"), "reduce is 'none', must be 'update'"),
    ("decode", SCATTER, replaced("output_names", ["out"]), "output_names is"),
    ("decode", SCATTER, removed("optional_input_names"), "optional_input_names"),
    ("decode", IFA, replaced("input_layout", "BSH"), "input_layout is 'BSH'"),
    ("decode", IFA, replaced("inner_precise", 0), "inner_precise is 0, must be 1"),
    ("decode", IFA, replaced("block_size", 128), "block_size is 128, must be 0"),
    ("decode", IFA, replaced("input_index", [0, 1, 2]), "input_index is"),
]  # fmt: skip
RUNNING = [
    ("prefill", CGDR, replaced("scale_value", 0.1), "scale_value is 0.1, heads of 32 need"),
    ("decode", RGDR, replaced("scale_value", 0.1), "scale_value is 0.1, heads of 32 need"),
    ("decode", RGDR, replaced("outputs_shape", "3,-1,4,32,"), "outputs_shape is"),
    ("decode", IFA, replaced("scale_value", 0.1), "scale_value is 0.1, heads of 64 need"),
    ("decode", IFA, replaced("num_heads", 8), "query must be float16"),
    ("decode", IFA, replaced("num_key_value_heads", 2), "key must be float16"),
]  # fmt: skip


@pytest.mark.parametrize(("component", "kind", "change", "message"), STATIC)
def test_a_node_that_differs_from_its_definition_is_refused_when_the_graph_is_opened(
    exported: Export, tmp_path: Path, component: str, kind: str, change: Change, message: str
) -> None:
    path = changed(exported, tmp_path, component, kind, change)
    with pytest.raises(ExportError, match=message):
        GraphExecutor(path)


@pytest.mark.parametrize(("component", "kind", "change", "message"), RUNNING)
def test_numbers_that_do_not_fit_the_operands_are_refused_when_the_node_runs(
    exported: Export, tmp_path: Path, component: str, kind: str, change: Change, message: str
) -> None:
    path = changed(exported, tmp_path, component, kind, change)
    whole = exported("plain")
    graphs = {**whole.graphs, component: GraphExecutor(path)}
    chat = AscendChat(type(whole)(whole.config, whole.options, graphs))
    if component == "decode":
        chat.prefill([1, 2, 3])
    call = partial(chat.step, 4) if component == "decode" else partial(chat.prefill, [1, 2, 3])
    with pytest.raises(ExportError, match=message):
        call()


def test_an_operator_the_converter_cannot_read_is_refused(exported: Export, tmp_path: Path) -> None:
    model = onnx.load(exported("plain").graphs["decode"].path, load_external_data=False)
    model.graph.node[0].op_type = "Einsum2"
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ExportError, match="does not know the operator Einsum2"):
        GraphExecutor(tmp_path / "model.onnx")


def test_another_opset_is_refused(exported: Export, tmp_path: Path) -> None:
    model = onnx.load(exported("plain").graphs["decode"].path, load_external_data=False)
    model.opset_import[0].version = 17
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ExportError, match="must use opset 14"):
        GraphExecutor(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("past_len", np.zeros(1, np.int64), r"past_len must be int32 \[1\], found int64"),
        ("input_ids", np.zeros((1, 7), np.int32), r"attention_mask must be int32 \[1, T\]"),
        ("image_embeds", np.zeros((1, 5), np.float16), r"image_embeds must be float16 \[M, 128\]"),
        ("extra", np.zeros(1), "missing or not the graph's: extra"),
    ],
)
def test_feeds_that_do_not_fit_the_graph_are_refused(
    exported: Export, name: str, array: Array, message: str
) -> None:
    graph = exported("plain").graphs["prefill"]
    lengths: dict[int | str, int] = {"T": 3, "M": 1}
    feeds = {
        info.name: np.zeros([int(lengths.get(axis, axis)) for axis in info.shape], info.dtype)
        for info in graph.inputs
    }
    with pytest.raises(ExportError, match=message):
        graph.run({**feeds, name: array})
