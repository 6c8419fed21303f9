"""What the exported graphs declare: names, dtypes, shapes, operators, golden nodes."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from q35export.ascend.census import census
from q35export.ascend.reference import GraphExecutor
from q35export.ascend.targets.standard import readable_operators
from q35export.pipeline import ExportRequest, export
from tests.ascend.conftest import Export
from tests.ascend.nodes import GOLDEN, KINDS, REWRITTEN, dump, graphs_of
from tests.export.recorder import Recorder
from tests.support.checkpoints import make_checkpoint

SHAPES = ("plain", "even", "full_first", "mostly_full")
VARIANTS: tuple[dict[str, bool], ...] = (
    {},
    {"fused_prefill": False, "fused_decode": False},
    {"stateless_prefill": True},
)


def _declared(graph: GraphExecutor) -> tuple[list[tuple[str, str, tuple[int | str, ...]]], ...]:
    return tuple(
        [(info.name, str(info.dtype), info.shape) for info in infos]
        for infos in (graph.inputs, graph.outputs)
    )


def _nodes(graph: GraphExecutor) -> list[onnx.NodeProto]:
    return list(onnx.load(graph.path, load_external_data=False).graph.node)


def test_prefill_declares_tokens_then_states(exported: Export) -> None:
    graph = exported("plain").graphs["prefill"]
    states = [
        ("conv_states", "float16", (3, 1, 256, 3)),
        ("recurrent_states", "float32", (3, 1, 4, 32, 32)),
        ("kv_cache", "float16", (2, 1, 2, 64, 64)),
    ]
    inputs, outputs = _declared(graph)
    assert inputs == [
        ("input_ids", "int32", (1, "T")),
        ("attention_mask", "int32", (1, "T")),
        ("position_ids", "int32", (4, 1, "T")),
        ("image_embeds", "float16", ("M", 128)),
        *((f"past_{name}", dtype, shape) for name, dtype, shape in states),
        ("past_len", "int32", (1,)),
    ]
    assert outputs == [
        ("logits", "float16", (1, 1, 384)),
        *((f"present_{name}", dtype, shape) for name, dtype, shape in states),
    ]


def test_a_stateless_prefill_takes_tokens_only_and_fills_the_cache(exported: Export) -> None:
    inputs, outputs = _declared(exported("plain", stateless_prefill=True).graphs["prefill"])
    assert [name for name, _, _ in inputs] == [
        "input_ids",
        "attention_mask",
        "position_ids",
        "image_embeds",
    ]
    assert outputs[-1] == ("present_kv_cache", "float16", (2, 1, 2, 64, 64))


def test_decode_has_no_open_axis(exported: Export) -> None:
    graph = exported("plain").graphs["decode"]
    inputs, outputs = _declared(graph)
    assert inputs[:3] == [
        ("input_ids", "int32", (1, 1)),
        ("attention_mask", "int32", (1, 64)),
        ("position_ids", "int32", (4, 1, 1)),
    ]
    assert [shape for _, _, shape in outputs[1:]] == [shape for _, _, shape in inputs[3:]]
    axes = [axis for _, _, shape in (*inputs, *outputs) for axis in shape]
    assert all(isinstance(axis, int) for axis in axes)


def test_an_unfused_decode_grows_by_one_slot(exported: Export) -> None:
    unfused = exported("plain", fused_decode=False)
    inputs, outputs = _declared(unfused.graphs["decode"])
    assert inputs[1] == ("attention_mask", "int32", (1, "past + 1"))
    assert inputs[-1] == ("past_kv_cache", "float16", (2, 1, 2, "past", 64))
    assert outputs[-1] == ("present_kv_cache", "float16", (2, 1, 2, "past + 1", 64))
    assert _declared(unfused.graphs["prefill"])[1][-1][2] == (2, 1, 2, "T", 64)


def test_fp32_holds_outside_the_kernels(exported: Export) -> None:
    graphs = exported("plain", dtype="fp32").graphs
    dtypes = {name: dtype for part in _declared(graphs["decode"]) for name, dtype, _ in part}
    assert dtypes["logits"] == dtypes["past_conv_states"] == "float32"
    assert dtypes["past_kv_cache"] == dtypes["present_kv_cache"] == "float16"
    assert {dtype for _, dtype, _ in _declared(graphs["vision"])[1]} == {"float32"}


@pytest.mark.parametrize("shape", SHAPES)
def test_fused_graphs_hold_one_kernel_a_linear_layer_and_three_a_full_one(
    exported: Export, shape: str
) -> None:
    fused = exported(shape)
    linear = fused.config.text.layer_types.count("linear_attention")
    full = fused.config.text.layer_types.count("full_attention")
    kinds = {name: Counter(node.kind for node in graph.custom_nodes)
             for name, graph in fused.graphs.items()}  # fmt: skip
    assert kinds == {
        "vision": {},
        "prefill": {"ChunkGatedDeltaRule": linear},
        "decode": {
            "RecurrentGatedDeltaRule": linear,
            "Scatter": 2 * full,
            "IncreFlashAttention": full,
        },
    }


def test_unfused_graphs_hold_no_kernel(exported: Export) -> None:
    unfused = exported("plain", fused_prefill=False, fused_decode=False)
    assert not any(graph.custom_nodes for graph in unfused.graphs.values())


@pytest.mark.parametrize("options", VARIANTS, ids=["fused", "unfused", "stateless"])
@pytest.mark.parametrize("shape", SHAPES)
def test_only_operators_that_the_converter_reads_and_no_leftovers(
    exported: Export, shape: str, options: dict[str, bool]
) -> None:
    for name, graph in exported(shape, **options).graphs.items():
        counts = Counter(node.op_type for node in _nodes(graph))
        assert counts.keys() <= readable_operators() - {"OneHot", "Identity", "Constant"}
        allowed = 2 if name == "prefill" else 0  # the length of the padding, and of the query
        assert counts["Shape"] <= allowed, name


@pytest.mark.parametrize("options", VARIANTS, ids=["fused", "unfused", "stateless"])
def test_every_input_and_every_node_is_used(exported: Export, options: dict[str, bool]) -> None:
    for graph in exported("plain", **options).graphs.values():
        nodes = _nodes(graph)
        used = {name for node in nodes for name in node.input}
        used |= {info.name for info in graph.outputs}
        assert {info.name for info in graph.inputs} <= used
        assert {name for node in nodes for name in node.output} <= used


@pytest.mark.parametrize("options", VARIANTS, ids=["fused", "unfused", "stateless"])
def test_the_onnx_checker_accepts_every_standard_node(
    exported: Export, options: dict[str, bool]
) -> None:
    context = onnx.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = 10, {"": 14}
    for graph in exported("even", **options).graphs.values():
        for node in _nodes(graph):
            if node.op_type != "Custom":
                onnx.checker.check_node(node, context)


def test_metadata_says_what_the_graph_is(exported: Export) -> None:
    metadata = exported("plain").graphs["decode"].metadata
    assert metadata == {
        "q35chat.contract": "1",
        "q35chat.graph": "decode",
        "q35chat.in_place": "",
        "q35chat.fused": "true",
        "q35chat.target": "ascend-310p",
        "q35chat.dtype": "fp16",
        "q35chat.gears": "32",
        "q35chat.image_gears": "4,16",
    }


def test_every_kind_of_graph_says_what_its_golden_file_says(tmp_path: Path) -> None:
    graphs = graphs_of(tmp_path)
    assert {file.stem for file in GOLDEN.glob("*.json")} == {*KINDS, REWRITTEN}
    for kind, graph in graphs.items():
        golden = json.loads((GOLDEN / f"{kind}.json").read_text(encoding="utf-8"))
        assert json.loads(json.dumps(dump(graph))) == golden, kind


SCOPES = ("layer_", "block_")


def test_every_node_is_counted_once(exported: Export) -> None:
    for name, graph in exported("even").graphs.items():
        model = ir.load(graph.path)
        counted = census(model)
        assert sum(counted.total.values()) == len(model.graph)
        outside = [node for node in model.graph if not (node.name or "").startswith(SCOPES)]
        assert sum(counted.outside.values()) == len(outside), name


def test_a_decode_layer_holds_its_kernels_once(exported: Export) -> None:
    counted = census(ir.load(exported("even").graphs["decode"].path))
    linear, full = counted.layers["linear"], counted.layers["full"]
    assert (linear[0], full[0]) == (4, 2)
    assert linear[1]["RecurrentGatedDeltaRule"] == 1
    assert (full[1]["Scatter"], full[1]["IncreFlashAttention"]) == (2, 1)


def test_an_export_tells_the_nodes_of_every_layer_by_type(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "plain", seed=3)
    request = ExportRequest(model=str(checkpoint), out=tmp_path / "out", max_seq_len=64)
    recorder = Recorder()
    export(replace(request, target="ascend-310p"), recorder)
    told = "\n".join(recorder.notes)
    assert "decode: 3 linear layers of" in told
    assert "1 RecurrentGatedDeltaRule" in told
    assert "prefill: outside of layers" in told
