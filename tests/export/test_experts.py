"""Mixtures of experts: how checkpoints store them, and what of them is refused."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import onnx
import pytest
from safetensors.numpy import load_file, save_file

from q35chat.errors import CheckpointError, ExportError, UsageError
from q35export.checkpoint import Checkpoint
from q35export.config import load_config
from q35export.pipeline import export
from q35export.precision import precision_plan
from q35export.progress import PlainReporter
from q35export.request import ExportRequest
from tests.support.checkpoints import make_checkpoint
from tests.support.experts import store_one_by_one
from tests.support.text_graph import write_text_graph

APART = "model.language_model.layers.2.mlp.experts.3"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "checkpoint", "experts", seed=1)


def test_experts_that_are_stored_one_by_one_make_the_same_graph(
    folder: Path, tmp_path: Path
) -> None:
    joined = write_text_graph(folder, tmp_path / "joined", 24)
    apart = write_text_graph(store_one_by_one(folder), tmp_path / "apart", 24)
    for name in ("model.onnx", "model.bin"):
        assert (joined.parent / name).read_bytes() == (apart.parent / name).read_bytes()


def test_an_expert_that_is_missing_is_named(folder: Path) -> None:
    path = store_one_by_one(folder) / "model.safetensors"
    tensors = load_file(path)
    del tensors[f"{APART}.up_proj.weight"]
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=rf"of the 8 experts .* {APART}.up_proj.weight is"):
        Checkpoint.open(folder)


def test_an_expert_of_another_width_is_named(folder: Path) -> None:
    path = store_one_by_one(folder) / "model.safetensors"
    tensors = load_file(path)
    tensors[f"{APART}.down_proj.weight"] = tensors[f"{APART}.down_proj.weight"][:, :9].copy()
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=rf"{APART}.down_proj.weight has shape \[128, 9\]"):
        Checkpoint.open(folder)


@pytest.mark.parametrize("dry_run", [True, False])
def test_an_npu_refuses_experts_on_one_line(folder: Path, tmp_path: Path, dry_run: bool) -> None:
    request = ExportRequest(
        str(folder), tmp_path / "out", target="ascend-310p", image_gears=(4, 16), dry_run=dry_run
    )
    with pytest.raises(ExportError) as caught:
        export(request, PlainReporter(io.StringIO()))
    assert str(caught.value) == (
        "the model has 8 experts a layer, which the NPU's graphs cannot hold: "
        "export with {TARGET} cpu".format(TARGET="--target")
    )
    assert not (tmp_path / "out").exists()


def test_each_expert_takes_a_format_that_divides_its_rows_or_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    config = load_config(folder)
    out = write_text_graph(folder, tmp_path / "int4", 24, precision_plan("int4"))
    nodes = list(onnx.load(out, load_external_data=False).graph.node)
    found = [node for node in nodes if node.op_type == "QMoE"]
    assert len(found) == len(config.text.layer_types)
    options = {attribute.name: attribute.i for attribute in found[0].attribute if attribute.i}
    assert (options["expert_weight_bits"], options["block_size"]) == (4, 32)
    routers = [node for node in nodes if "/experts/" in node.name and node.op_type != "QMoE"]
    assert {node.op_type for node in routers} == {"FusedMatMul", "Reshape"}
    odd = make_checkpoint(tmp_path / "odd", "odd_experts", seed=1)
    with pytest.raises(CheckpointError, match=r"rows of 96 and 40 weights .* --precision fp32"):
        write_text_graph(odd, tmp_path / "refused", 24, precision_plan("int4"))


@pytest.mark.parametrize("asked", [{"bits": 5.0}, {"precision": "int4-exact"}], ids=str)
def test_bits_where_they_count_are_refused(
    folder: Path, tmp_path: Path, asked: dict[str, Any]
) -> None:
    request = ExportRequest(str(folder), tmp_path / "out", target="cpu", **asked)
    with pytest.raises(UsageError, match="are for dense models, this one has 8 experts a layer"):
        export(request, PlainReporter(io.StringIO()))
