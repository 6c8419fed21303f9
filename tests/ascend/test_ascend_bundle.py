"""The 310P target through the whole export: one folder a graph, options, what may be mixed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from q35chat.bundle.bundle import Bundle
from q35chat.errors import ExportError, UsageError
from q35export.ascend.reference import GraphExecutor
from q35export.pipeline import ExportRequest, ExportResult, export
from tests.export.recorder import Recorder
from tests.support.checkpoints import make_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"), "plain", seed=3)


@pytest.fixture(scope="module")
def made(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / "out"
    run(request_for(checkpoint, out))
    return out


@pytest.fixture
def bundle(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "out"))


def request_for(checkpoint: Path, out: Path) -> ExportRequest:
    return ExportRequest(
        model=str(checkpoint), out=out, target="ascend-310p", max_seq_len=64, image_gears=(4, 16)
    )


def run(request: ExportRequest) -> ExportResult:
    return export(request, Recorder())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_bundle_holds_three_graphs_each_with_weights_of_its_own(made: Path) -> None:
    opened = Bundle.open(made, check="full")
    manifest = opened.manifest
    assert (manifest.target, manifest.precision, manifest.capacity) == ("ascend-310p", "fp16", 64)
    assert list(manifest.graphs) == ["vision", "prefill", "decode"]
    for name in manifest.graphs:
        assert set(contents(made / name)) == {"model.onnx", "model.bin"}
        assert GraphExecutor(opened.graph_path(name)).metadata["q35chat.graph"] == name


def test_the_manifest_says_what_shaped_each_graph(made: Path) -> None:
    shared = {"precision": "fp16", "max_seq_len": 64, "cache": "fixed"}
    assert Bundle.open(made).manifest.options == {
        "vision": {"precision": "fp16", "image_gears": "4,16"},
        "prefill": {
            **shared,
            "gears": "32",
            "image_gears": "4,16",
            "delta_rule": "fused",
            "states": "taken",
        },
        "decode": shared,
    }


@pytest.mark.parametrize("component", ["vision", "prefill", "decode"])
def test_exporting_one_component_again_touches_no_other(
    checkpoint: Path, bundle: Path, component: str
) -> None:
    others = [name for name in ("vision", "prefill", "decode") if name != component]
    before = {name: contents(bundle / name) for name in others}
    run(replace(request_for(checkpoint, bundle), component=component, force=True))
    assert {name: contents(bundle / name) for name in others} == before
    assert Bundle.open(bundle, check="full").manifest.graphs.keys() == {component, *others}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_seq_len": 128}, "kept has max_seq_len 64, decode would have 128"),
        ({"dtype": "fp32"}, "kept has precision fp16, decode would have fp32"),
        ({"fused_decode": False}, "kept has cache fixed, decode would have growing"),
    ],
)
def test_graphs_that_would_not_work_together_are_not_mixed(
    checkpoint: Path, bundle: Path, change: dict[str, Any], message: str
) -> None:
    request = replace(request_for(checkpoint, bundle), component="decode", force=True, **change)
    with pytest.raises(ExportError, match=message):
        run(request)


def test_the_same_export_again_is_up_to_date(checkpoint: Path, bundle: Path) -> None:
    assert run(request_for(checkpoint, bundle)).status == "up-to-date"
    other = replace(request_for(checkpoint, bundle), gears=(16, 32))
    with pytest.raises(UsageError, match="with gears 32, not 16,32;"):
        run(other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gears": (128,)}, "--gears must be in 1 to 64"),
        ({"image_gears": ()}, "--image-gears names no length"),
    ],
)
def test_impossible_gears_are_refused_before_anything_is_read(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    request = replace(request_for(tmp_path / "nothing", tmp_path / "out"), **change)
    with pytest.raises(UsageError, match=message):
        run(request)


@pytest.mark.parametrize(
    ("target", "component"), [("ascend-310p", "text"), ("cpu", "prefill"), ("cpu", "decode")]
)
def test_a_component_of_the_other_target_is_a_usage_error(target: str, component: str) -> None:
    with pytest.raises(UsageError, match=f"--component of target {target} must be one of"):
        ExportRequest(target=target, component=component)


def test_a_dry_run_knows_the_sizes(checkpoint: Path, made: Path, tmp_path: Path) -> None:
    plan = run(replace(request_for(checkpoint, tmp_path / "out"), dry_run=True)).plan
    assert plan is not None
    sizes = {file.path: file.size for file in plan.files}
    assert sizes == {name: entry.size for name, entry in Bundle.open(made).manifest.files.items()}
    assert plan.memory.kv_cache == 2 * 2 * (2 * 64 * 64) * 2


def test_a_weight_that_fp16_cannot_hold_is_refused(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "plain", seed=3)
    file = checkpoint / "model.safetensors"
    tensors = load_file(file)
    tensors["model.language_model.layers.1.mlp.up_proj.weight"][3, 5] = 1e5
    save_file(tensors, file, metadata={"format": "pt"})
    request = request_for(checkpoint, tmp_path / "out")
    with pytest.raises(ExportError, match=r"gate_up is 1e\+05, beyond the range of FP16"):
        run(replace(request, component="decode"))
    assert not (tmp_path / "out").exists()
    assert run(replace(request, component="decode", dtype="fp32")).status == "exported"
