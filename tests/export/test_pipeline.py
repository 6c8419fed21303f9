from __future__ import annotations

import errno
import json
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import onnx_ir as ir
import pytest
from safetensors.numpy import load_file, save_file

from q35chat.bundle.bundle import MANIFEST_NAME, Bundle
from q35chat.errors import BundleError, CheckpointError, ExportError, UsageError
from q35export.pipeline import ExportRequest, ExportResult, export
from tests.export.bundles import names, request_for
from tests.export.recorder import Recorder
from tests.support.checkpoints import make_checkpoint


def run(request: ExportRequest, recorder: Recorder | None = None) -> ExportResult:
    return export(request, recorder or Recorder())


def state_of(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
    }


def never(*_: object) -> NoReturn:
    raise AssertionError


def test_an_exported_bundle_is_whole_and_says_what_it_is(checkpoint: Path, exported: Path) -> None:
    manifest = Bundle.open(exported, check="full").manifest
    config = json.loads((checkpoint / "config.json").read_text())
    assert (manifest.target, manifest.precision, manifest.capacity) == ("cpu", "int4", 32)
    assert manifest.graphs == {"vision": "vision/model.onnx", "text": "text/model.onnx"}
    assert manifest.source.name == checkpoint.name
    assert manifest.model.image_token_id == config["image_token_id"]
    assert list(manifest.model.layer_types) == config["text_config"]["layer_types"]
    assert manifest.model.position_grid_side == 6
    written = {str(path.relative_to(exported)) for path in exported.rglob("*") if path.is_file()}
    assert written == {MANIFEST_NAME, *manifest.files}


def test_the_graphs_declare_the_capacity_that_was_asked_for(exported: Path) -> None:
    model = ir.load(Bundle.open(exported).graph_path("text"))
    shapes = {value.name: value.shape for value in model.graph.inputs}
    assert shapes["attention_mask"] == ir.Shape([1, 32])
    assert shapes["past_key_3"] == ir.Shape([1, 2, 32, 64])


def test_processor_files_are_copied_unchanged(checkpoint: Path, exported: Path) -> None:
    processor = Bundle.open(exported).processor_dir
    assert {"tokenizer.json", "chat_template.jinja", "preprocessor_config.json"} < set(
        names(processor)
    )
    for path in processor.iterdir():
        assert path.read_bytes() == (checkpoint / path.name).read_bytes()


def test_a_bundle_outlives_its_checkpoint_and_its_place(
    own_checkpoint: Path, tmp_path: Path
) -> None:
    run(request_for(own_checkpoint, tmp_path / "made"))
    shutil.rmtree(own_checkpoint)
    moved = Path(shutil.move(tmp_path / "made", tmp_path / "moved"))
    opened = Bundle.open(moved, check="full")
    weights = ir.load(opened.graph_path("text")).graph.initializers.values()
    outside = [
        item.const_value for item in weights if isinstance(item.const_value, ir.ExternalTensor)
    ]
    assert len(outside) > 20
    assert all(np.isfinite(tensor.numpy().astype(np.float32)).all() for tensor in outside)


def test_a_second_run_returns_without_touching_anything(checkpoint: Path, bundle: Path) -> None:
    before = state_of(bundle)
    builders = {"vision": never, "text": never}
    result = export(request_for(checkpoint, bundle), Recorder(), builders=builders)
    assert (result.status, result.plan) == ("up-to-date", None)
    assert "up to date" in result.message
    assert state_of(bundle) == before


def test_a_copy_of_the_checkpoint_is_the_same_source(own_checkpoint: Path, bundle: Path) -> None:
    assert run(request_for(own_checkpoint, bundle)).status == "up-to-date"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_seq_len": 64}, "holds a bundle of 32 slots, not 64; add"),
        ({"precision": "int8"}, "holds an int4 bundle, not int8; add"),
        ({"precision": "int8", "max_seq_len": 64}, "int4 bundle, not int8, of 32 slots, not 64;"),
        ({"precision": "int8", "calibrate": True}, "holds an int4 bundle, not int8; add"),
        ({"block_size": 64}, "holds a bundle with block_size auto, not 64; add"),
        ({"bits": 6.0}, "holds a bundle with bits auto, not 6; add"),
    ],
)
def test_other_options_need_force(
    checkpoint: Path, bundle: Path, change: dict[str, Any], message: str
) -> None:
    before = state_of(bundle)
    request = request_for(checkpoint, bundle, **change)
    with pytest.raises(UsageError, match=f"{message}.*--force"):
        run(request)
    assert state_of(bundle) == before
    run(replace(request, force=True))
    assert run(request).status == "up-to-date"


def test_weights_rewritten_in_place_are_another_source(own_checkpoint: Path, bundle: Path) -> None:
    path = own_checkpoint / "model.safetensors"
    tensors = load_file(path)
    save_file(tensors, path)
    with pytest.raises(UsageError, match=r"another source .*--force"):
        run(request_for(own_checkpoint, bundle))


def test_one_component_is_exported_again_and_the_other_stays(
    checkpoint: Path, bundle: Path
) -> None:
    vision = state_of(bundle / "vision")
    before = Bundle.open(bundle).manifest
    request = request_for(checkpoint, bundle, component="text", max_seq_len=64, precision="int8")
    with pytest.raises(UsageError, match="--force"):
        run(request)
    result = run(replace(request, force=True))
    after = Bundle.open(bundle, check="full").manifest
    assert state_of(bundle / "vision") == vision
    assert (after.capacity, after.precision) == (64, "int8")
    vision_options = {"precision": "int4", "block_size": "auto"}
    assert after.options["vision"] == before.options["vision"] == vision_options
    assert after.files["vision/model.bin"] == before.files["vision/model.bin"]
    assert after.files["text/model.bin"] != before.files["text/model.bin"]
    assert result.plan is not None
    assert {file.path for file in result.plan.kept} == {"vision/model.bin", "vision/model.onnx"}


def test_a_kept_component_is_copied_where_links_are_not_possible(
    checkpoint: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr("os.link", no_links)
    run(request_for(checkpoint, bundle, component="text", force=True))
    assert Bundle.open(bundle, check="full").graph_path("vision").is_file()


def test_a_missing_component_is_added_without_force(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    request = request_for(checkpoint, out)
    run(replace(request, component="text"))
    assert set(Bundle.open(out).manifest.graphs) == {"text"}
    run(replace(request, component="vision"))
    assert Bundle.open(out, check="full").manifest.capacity == 32
    assert run(request).status == "up-to-date"


def test_a_component_of_another_checkpoint_does_not_fit(bundle: Path, tmp_path: Path) -> None:
    other = make_checkpoint(tmp_path / "other", "plain", seed=4)
    request = request_for(other, bundle, component="text", force=True)
    with pytest.raises(ExportError, match="its other component does not fit; use --component all"):
        run(request)


def altered(path: Path) -> None:
    """Other bytes in the middle, the same size: of a graph's file a wrong graph."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 100] = bytes(byte ^ 0xFF for byte in data[middle : middle + 100])
    path.unlink()  # a copy in a test may be a hard link
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["text/model.bin", "vision/model.bin", "text/model.onnx"])
def test_the_same_export_makes_a_damaged_component_again_and_keeps_the_other(
    checkpoint: Path, bundle: Path, name: str
) -> None:
    damaged, whole = ("text", "vision") if name.startswith("text") else ("vision", "text")
    before = Bundle.open(bundle).manifest
    kept = state_of(bundle / whole)
    altered(bundle / name)
    recorder = Recorder()

    result = export(request_for(checkpoint, bundle), recorder)

    assert result.status == "exported"
    assert any(f"{name} was altered" in note for note in recorder.notes)
    assert any(f"; {damaged} is exported again" in note for note in recorder.notes)
    after = Bundle.open(bundle, check="full").manifest
    assert (after.files, after.options) == (before.files, before.options)
    assert state_of(bundle / whole) == kept


@pytest.mark.parametrize("name", ["text/model.bin", "processor/tokenizer.json"])
def test_the_same_export_makes_what_is_truncated_or_missing_again(
    checkpoint: Path, bundle: Path, name: str
) -> None:
    before = Bundle.open(bundle).manifest.files
    (bundle / name).write_bytes(b"short")
    (bundle / "vision/model.onnx").unlink()
    assert run(request_for(checkpoint, bundle)).status == "exported"
    assert Bundle.open(bundle, check="full").manifest.files == before


@pytest.mark.parametrize("force", [False, True])
def test_one_component_is_not_exported_beside_a_truncated_one(
    checkpoint: Path, bundle: Path, force: bool
) -> None:
    (bundle / "text" / "model.bin").write_bytes(b"short")
    request = request_for(checkpoint, bundle, component="vision", force=force)
    with pytest.raises(ExportError, match=r"text/model.bin is truncated.*; use --component all"):
        run(request)


def test_a_bundle_with_a_broken_manifest_is_made_again_with_force(
    checkpoint: Path, bundle: Path
) -> None:
    (bundle / MANIFEST_NAME).write_text("{")
    with pytest.raises(BundleError, match="not valid JSON"):
        run(request_for(checkpoint, bundle))
    run(request_for(checkpoint, bundle, force=True))
    assert Bundle.open(bundle, check="full")


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_that_is_no_bundle_is_never_replaced(
    checkpoint: Path, tmp_path: Path, force: bool
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match=r"not a bundle \(it holds thesis.txt\)"):
        run(request_for(checkpoint, tmp_path / "out", force=force))
    assert names(tmp_path / "out") == ["thesis.txt"]


def test_a_file_that_no_export_wrote_keeps_a_bundle_from_being_replaced(
    checkpoint: Path, bundle: Path
) -> None:
    (bundle / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds notes.txt, which no export wrote"):
        run(request_for(checkpoint, bundle, force=True))
    assert (bundle / "notes.txt").is_file()


@pytest.mark.parametrize("name", [f".{MANIFEST_NAME}ab_12xyz", ".q35-lock"])
def test_what_a_killed_run_left_in_a_bundle_is_not_foreign(
    checkpoint: Path, bundle: Path, name: str
) -> None:
    (bundle / name).write_text("half")
    request = request_for(checkpoint, bundle)
    assert run(request).status == "up-to-date"
    assert run(replace(request, force=True)).status == "exported"
    assert name not in names(bundle)


def test_a_file_in_the_place_of_the_bundle_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"")
    with pytest.raises(UsageError, match="is a file"):
        run(request_for(checkpoint, tmp_path / "out"))


@pytest.mark.parametrize("name", ["empty", "a/b/out"])
def test_an_empty_folder_becomes_the_bundle_and_the_folders_above_it_are_made(
    checkpoint: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "empty").mkdir()
    run(request_for(checkpoint, tmp_path / name))
    assert Bundle.open(tmp_path / name)


def test_a_link_to_a_bundle_stays_a_link(checkpoint: Path, bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(bundle)
    run(request_for(checkpoint, tmp_path / "link", max_seq_len=64, force=True))
    assert (tmp_path / "link").is_symlink()
    assert Bundle.open(bundle).manifest.capacity == 64


def test_more_slots_than_the_model_has_positions_are_refused(
    checkpoint: Path, tmp_path: Path
) -> None:
    request = request_for(checkpoint, tmp_path / "out", max_seq_len=300_000)
    with pytest.raises(UsageError, match=r"300000 is more than the model's 262144 positions"):
        run(request)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("precision", "int3"),
        ("component", "audio"),
        ("source", "ftp"),
        ("target", "tpu"),
        ("max_seq_len", 0),
        ("max_seq_len", 16),
        ("block_size", 48),
    ],
)
def test_a_choice_that_does_not_exist_is_a_usage_error(option: str, value: Any) -> None:
    name = option.replace("_", "-")
    with pytest.raises(UsageError, match=f"--{name} must be .*found .*{value}"):
        replace(ExportRequest(), **{option: value})


def test_a_block_size_for_weights_without_scales_is_refused() -> None:
    said = "--block-size 64 is for int8 and int4; fp32 .*: leave it out, or choose another"
    with pytest.raises(UsageError, match=said):
        ExportRequest(precision="fp32", block_size=64)
    assert ExportRequest(precision="int8", block_size=64).block_size == 64


def test_too_little_disk_space_is_seen_before_anything_is_written(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(2**30, 2**30 - 2**19, 2**19))
    with pytest.raises(ExportError, match=r"needs 1\.\d MiB .*512\.0 KiB are free; free 6.* KiB"):
        run(request_for(checkpoint, tmp_path / "out"))
    assert names(tmp_path) == []


def test_nan_weights_leave_the_old_bundle_as_it_was(own_checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(request_for(own_checkpoint, out))
    path = own_checkpoint / "model.safetensors"
    tensors = load_file(path)
    tensors["model.language_model.layers.3.mlp.down_proj.weight"][5, 5] = np.nan
    save_file(tensors, path)
    before = state_of(out)
    with pytest.raises(CheckpointError, match=r"down_proj.weight holds NaN"):
        run(request_for(own_checkpoint, out, force=True))
    assert state_of(out) == before
    assert names(tmp_path) == ["checkpoint", "out"]


def test_a_disk_that_fills_up_leaves_nothing_behind(checkpoint: Path, tmp_path: Path) -> None:
    class Full(Recorder):
        def advance(self, component: str, count: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ExportError, match=r"cannot write the bundle .*No space left"):
        run(request_for(checkpoint, tmp_path / "out"), Full())
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("config.json", "config.json"),
        ("tokenizer.json", "has neither tokenizer.json nor vocab.json and merges.txt"),
        ("preprocessor_config.json", "has no preprocessor_config.json"),
        ("chat_template.jinja", "has no chat template"),
        ("model.safetensors", "no safetensors"),
    ],
)
def test_a_checkpoint_that_lacks_a_file_is_refused_before_anything_is_written(
    own_checkpoint: Path, tmp_path: Path, missing: str, message: str
) -> None:
    (own_checkpoint / missing).unlink()
    with pytest.raises(CheckpointError, match=message):
        run(request_for(own_checkpoint, tmp_path / "out"))
    assert names(tmp_path) == ["checkpoint"]


def test_a_template_inside_the_tokenizer_config_is_enough(
    own_checkpoint: Path, tmp_path: Path
) -> None:
    path = own_checkpoint / "tokenizer_config.json"
    template = (own_checkpoint / "chat_template.jinja").read_text()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": template}))
    (own_checkpoint / "chat_template.jinja").unlink()
    assert run(request_for(own_checkpoint, tmp_path / "out")).status == "exported"


def test_a_broken_tokenizer_config_is_named(own_checkpoint: Path, tmp_path: Path) -> None:
    (own_checkpoint / "tokenizer_config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"tokenizer_config.json is not valid JSON"):
        run(request_for(own_checkpoint, tmp_path / "out"))


def test_another_model_type_is_refused(own_checkpoint: Path, tmp_path: Path) -> None:
    path = own_checkpoint / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "llama"}))
    with pytest.raises(CheckpointError, match="model_type is 'llama'"):
        run(request_for(own_checkpoint, tmp_path / "out"))


def test_progress_is_told_by_component_and_mtp_once(checkpoint: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    run(request_for(checkpoint, tmp_path / "out"), recorder)
    bounds = [event for event in recorder.events if not event.startswith("advance")]
    parts = ("rounding", "vision", "text")
    assert bounds == [f"{moment} {part}" for part in parts for moment in ("begin", "end")]
    assert recorder.written["rounding"] == recorder.totals["rounding"]
    assert 0 < recorder.written["text"] <= recorder.totals["text"]
    assert len([note for note in recorder.notes if "mtp" in note]) == 1


def test_a_dry_run_writes_nothing_and_a_real_one_writes_what_it_said(
    checkpoint: Path, tmp_path: Path
) -> None:
    request = request_for(checkpoint, tmp_path / "new" / "out")
    result = run(replace(request, dry_run=True))
    assert result.status == "planned"
    assert names(tmp_path) == []
    assert result.plan is not None
    run(request)
    manifest = Bundle.open(request.out).manifest
    planned = {file.path: file.size for file in result.plan.files}
    written = {name: entry.size for name, entry in manifest.files.items()}
    graph = "text/model.onnx"
    assert planned.pop(graph) == pytest.approx(written.pop(graph), rel=0.01)  # digits of offsets
    assert planned == written


def test_a_dry_run_over_a_bundle_shows_other_options_without_force(
    checkpoint: Path, bundle: Path
) -> None:
    before = state_of(bundle)
    request = request_for(checkpoint, bundle, precision="fp32", dry_run=True)
    assert run(request).status == "planned"
    assert state_of(bundle) == before


def test_a_dry_run_refuses_what_the_export_would_refuse(
    own_checkpoint: Path, tmp_path: Path
) -> None:
    (own_checkpoint / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="no safetensors"):
        run(request_for(own_checkpoint, tmp_path / "out", dry_run=True))
