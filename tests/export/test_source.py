from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from q35chat.errors import CheckpointError, UsageError
from q35export.pipeline import ExportRequest, export
from q35export.source import folder_fingerprint, resolve
from tests.export.bundles import request_for
from tests.export.recorder import Recorder
from tests.support.checkpoints import make_checkpoint

MODEL = "some-owner/some-model"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
Download = Callable[..., str]


class Hub:
    """A hub with one model; remembers what it was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / COMMIT
        self.asked: list[dict[str, Any]] = []

    def __call__(self, model: str, **options: Any) -> str:
        self.asked.append({"model": model} | options)
        return str(self.folder)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub(tmp_path / "snapshots")
    make_checkpoint(hub.folder, "plain", seed=5)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    return hub


def quiet(_: str) -> None:
    pass


def failing(error: Exception) -> Download:
    def download(*_: object, **__: object) -> str:
        raise error

    return download


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "my model", "plain")
    local = resolve(ExportRequest(model=str(folder)), quiet)
    assert (local.folder, local.source.name, local.source.revision) == (folder, "my model", None)
    assert local.source.fingerprint.startswith("folder:")


@pytest.mark.parametrize("model", ["./absent", "/absent/folder", "~/absent", "../absent/x"])
def test_a_path_that_does_not_exist_is_never_looked_for_on_the_hub(model: str) -> None:
    with pytest.raises(CheckpointError, match="does not exist: give the folder"):
        resolve(ExportRequest(model=model), quiet)


@pytest.mark.parametrize("model", ["qwen", "a/b/c", "a b/c", "", "owner/", "http://x/y"])
def test_what_is_neither_folder_nor_hub_id_is_refused(model: str) -> None:
    with pytest.raises(CheckpointError, match=r"there is no folder .*hub id such as Qwen/"):
        resolve(ExportRequest(model=model), quiet)


def test_a_repository_of_gguf_files_is_named_for_what_it_is(hub: Hub) -> None:
    (hub.folder / "config.json").unlink()
    request = ExportRequest(model="owner/Qwen3.5-4B-GGUF")
    with pytest.raises(CheckpointError, match=r"Qwen3\.5-4B-GGUF has GGUF weights; export"):
        resolve(request, quiet, weights=False)


def test_a_file_is_no_checkpoint_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="is not a folder"):
        resolve(ExportRequest(model=str(tmp_path / "file")), quiet)


def test_a_hub_id_is_fetched_with_the_needed_files_only(hub: Hub) -> None:
    local = resolve(ExportRequest(model=MODEL, revision="v1"), quiet)
    (asked,) = hub.asked
    assert (asked["model"], asked["revision"]) == (MODEL, "v1")
    assert "*.safetensors" in asked["allow_patterns"]
    assert not {"*", "*.bin", "*.gguf"} & set(asked["allow_patterns"])
    assert local.folder == hub.folder
    assert local.source.revision == "v1"
    assert local.source.fingerprint == f"huggingface:{MODEL}@{COMMIT}"


def test_the_commit_is_recorded_where_no_revision_was_named(hub: Hub) -> None:
    assert resolve(ExportRequest(model=MODEL), quiet).source.revision == COMMIT


def test_a_dry_run_of_a_hub_id_fetches_no_weights(hub: Hub, tmp_path: Path) -> None:
    (hub.folder / "model.safetensors").unlink()
    request = request_for(MODEL, tmp_path / "out", dry_run=True)
    assert export(request, Recorder()).status == "planned"
    assert "*.safetensors" not in hub.asked[0]["allow_patterns"]


def test_a_second_export_of_a_hub_id_needs_neither_hub_nor_cache(hub: Hub, tmp_path: Path) -> None:
    request = request_for(MODEL, tmp_path / "out")
    assert export(request, Recorder()).status == "exported"
    shutil.rmtree(hub.folder)
    result = export(request, Recorder())
    assert (result.status, result.checkpoint) == ("up-to-date", None)
    assert len(hub.asked) == 1


def test_other_options_are_refused_before_anything_is_fetched(hub: Hub, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(request_for(MODEL, out), Recorder())
    with pytest.raises(UsageError, match="--force"):
        export(request_for(MODEL, out, max_seq_len=64), Recorder())
    assert len(hub.asked) == 1


def test_another_revision_with_the_same_commit_is_the_same_source(hub: Hub, tmp_path: Path) -> None:
    request = request_for(MODEL, tmp_path / "out")
    export(request, Recorder())
    assert export(replace(request, revision="v1"), Recorder()).status == "up-to-date"
    assert len(hub.asked) == 2


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (type("GatedRepoError", (Exception,), {})(), "is gated.*hf auth login"),
        (type("RepositoryNotFoundError", (Exception,), {})(), "the hub has no model"),
        (type("RevisionNotFoundError", (Exception,), {})(), "has no revision 'v1'"),
        (OSError(28, "No space left on device"), "the disk is full while fetching"),
        (ConnectionError("first line\nsecond line"), r"ConnectionError: first line\); check the"),
        (TimeoutError(), "no reason given.*HF_ENDPOINT.*modelscope.*local folder"),
    ],
)
def test_a_failed_download_is_one_line_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", failing(error))
    with pytest.raises(CheckpointError, match=message) as caught:
        resolve(ExportRequest(model=MODEL, revision="v1"), quiet)
    assert "\n" not in str(caught.value)


def test_offline_mode_is_named_as_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    error = LocalEntryNotFoundError("Cannot find an appropriate cached snapshot folder")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", failing(error))
    with pytest.raises(CheckpointError, match="not in the cache and HF_HUB_OFFLINE is set"):
        resolve(ExportRequest(model=MODEL), quiet)


def test_modelscope_without_its_package_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "modelscope", None)
    with pytest.raises(UsageError, match="pip install modelscope"):
        resolve(ExportRequest(model=MODEL, source="modelscope"), quiet)


def test_modelscope_is_told_apart_by_the_files_it_gave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint", "plain", seed=5)
    package = ModuleType("modelscope")
    package.snapshot_download = lambda *_, **__: str(folder)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "modelscope", package)
    request = request_for(MODEL, tmp_path / "out", source="modelscope")
    assert resolve(request, quiet).source.fingerprint.startswith(f"modelscope:{MODEL}@")
    assert export(request, Recorder()).status == "exported"
    assert export(request, Recorder()).status == "up-to-date"
    package.snapshot_download = failing(ConnectionError("down"))  # type: ignore[attr-defined]
    with pytest.raises(CheckpointError, match="cannot fetch"):
        resolve(request, quiet)


def test_a_fingerprint_sees_small_files_by_content_and_weights_by_time(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "a", "plain")
    first = folder_fingerprint(folder)
    assert folder_fingerprint(Path(shutil.copytree(folder, tmp_path / "b"))) == first
    config = folder / "config.json"
    text = config.read_text()
    config.write_text(text + " ")
    assert folder_fingerprint(folder) != first
    config.write_text(text)
    assert folder_fingerprint(folder) == first
    os.utime(folder / "model.safetensors", ns=(1, 1))
    assert folder_fingerprint(folder) != first


def test_a_fingerprint_ignores_what_is_no_part_of_a_checkpoint(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "a", "plain")
    first = folder_fingerprint(folder)
    (folder / "README.md").write_text("hello")
    (folder / ".cache").mkdir()
    assert folder_fingerprint(folder) == first
