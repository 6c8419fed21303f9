"""Exports that delete their checkpoint on the way: the same bundle, and never a layer lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from q35chat.bundle.bundle import Bundle, is_bundle
from q35chat.errors import CheckpointError, ExportError, UsageError
from q35export.pipeline import export
from q35export.request import ExportRequest
from q35export.safetensors_files import GONE
from tests.export.recorder import Recorder
from tests.export.test_calibration import Stopping
from tests.support.checkpoints import make_checkpoint

LAYERS = 4


@pytest.fixture
def request_(tmp_path: Path) -> ExportRequest:
    """An export that deletes a checkpoint of experts in ten files."""
    text = tmp_path / "text"
    text.write_text("The user and the assistant. 图片。\n" * 9, encoding="utf-8")
    return ExportRequest(
        str(make_checkpoint(tmp_path / "in", "experts", seed=3, dtype="bfloat16", shards=10)),
        tmp_path / "out",
        target="cpu",
        max_seq_len=64,
        calibration=text,
        stream=True,
    )


def shards(request: ExportRequest) -> int:
    """Weight files that are still there."""
    return len(list(Path(request.model).glob("*.safetensors")))


def contents(folder: Path) -> dict[str, str]:
    """The digests of a bundle's files."""
    files = Bundle.open(folder, check="full").manifest.files
    return {name: entry.sha256 for name, entry in files.items()}


def plain(request: ExportRequest, out: Path) -> dict[str, str]:
    """The files that an export makes which deletes nothing."""
    export(replace(request, stream=False, out=out), Recorder())
    return contents(out)


def test_files_go_with_their_layers_and_the_bundle_is_the_same(
    request_: ExportRequest, tmp_path: Path
) -> None:
    wanted = plain(request_, tmp_path / "plain")
    export(request_, recorder := Recorder())
    assert contents(request_.out) == wanted
    deleted = [note for note in recorder.notes if note.startswith("deleted ")]
    assert shards(request_) + len(deleted) == 10
    assert len(deleted) >= LAYERS
    assert export(request_, Recorder()).status == "up-to-date"


@pytest.mark.parametrize("layers", [1, 3])
def test_an_export_that_is_stopped_goes_on_without_the_files_that_are_gone(
    request_: ExportRequest, tmp_path: Path, layers: int
) -> None:
    wanted = plain(request_, tmp_path / "plain")
    with pytest.raises(KeyboardInterrupt):
        export(request_, Stopping(layers + 1))
    assert shards(request_) < 10
    assert not is_bundle(request_.out)
    export(request_, Recorder())
    assert contents(request_.out) == wanted


def test_what_is_left_of_a_checkpoint_is_refused_to_others(request_: ExportRequest) -> None:
    with pytest.raises(KeyboardInterrupt):
        export(request_, Stopping(2))
    with pytest.raises(CheckpointError, match=r"weight files of .* were deleted by an export"):
        export(replace(request_, stream=False), Recorder())
    for other in (replace(request_, max_seq_len=64, block_size=64), replace(request_, bits=5.0)):
        with pytest.raises((ExportError, UsageError)):
            export(other, Recorder())
    with pytest.raises(ExportError, match="these options do not go on with: use its own"):
        export(replace(request_, out=request_.out.with_name("other")), Recorder())
    export(request_, Recorder())
    assert is_bundle(request_.out)


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"files": {"a": {"b": [1]}}}'])
def test_a_damaged_list_of_what_is_gone_is_one_line(request_: ExportRequest, damage: str) -> None:
    Path(request_.model, GONE).write_text(damage)
    with pytest.raises(CheckpointError, match="cannot be read") as caught:
        export(request_, Recorder())
    assert "\n" not in str(caught.value)


def test_fp32_deletes_nothing(request_: ExportRequest) -> None:
    asked: dict[str, Any] = {"precision": "fp32", "calibration": None}
    with pytest.raises(UsageError, match="is for int8 and int4"):
        replace(request_, **asked)
