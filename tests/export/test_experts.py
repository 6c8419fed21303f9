"""Mixtures of experts: how checkpoints store them, and what of them is refused."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from q35chat.errors import CheckpointError, ExportError
from q35export.checkpoint import Checkpoint
from q35export.pipeline import export
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
