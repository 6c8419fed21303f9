"""Where an export may put its bundle, told before any work is done."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from q35chat.bundle.bundle import Bundle
from q35chat.errors import CheckpointError, UsageError
from q35export import output_state as existing
from q35export.output_state import is_mount_point
from q35export.pipeline import export
from tests.export.bundles import names, request_for
from tests.export.recorder import Recorder

TABLE = (
    "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
    r"40 22 8:1 /home/a /srv/my\040model rw,relatime shared:1 - ext4 /dev/sda1 rw" + "\n\n"
)


def never(*_: object) -> NoReturn:
    raise AssertionError


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that counts as mounted."""
    folder = tmp_path / "volume"
    folder.mkdir()
    monkeypatch.setattr(existing, "is_mount_point", folder.__eq__)
    return folder


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_mount_point_is_refused_before_the_work(
    checkpoint: Path, mounted: Path, *, dry_run: bool
) -> None:
    request = request_for(checkpoint, mounted, dry_run=dry_run)
    builders = {"vision": never, "text": never}
    with pytest.raises(UsageError, match=rf"mount point.* --out {mounted}/model$"):
        export(request, Recorder(), builders=builders)
    assert names(mounted) == []


def test_a_mount_point_is_refused_before_the_checkpoint_is_looked_for(mounted: Path) -> None:
    with pytest.raises(UsageError, match="mount point"):
        export(request_for(Path("/absent"), mounted), Recorder())


def test_a_folder_in_a_mount_point_is_written(checkpoint: Path, mounted: Path) -> None:
    assert export(request_for(checkpoint, mounted / "model"), Recorder()).status == "exported"
    assert Bundle.open(mounted / "model", check="full")


def test_a_bundle_at_a_mount_point_is_up_to_date_but_not_replaced(
    own_checkpoint: Path, mounted: Path
) -> None:
    request = request_for(own_checkpoint, mounted)
    export(request_for(own_checkpoint, mounted / "made"), Recorder())
    for path in (mounted / "made").iterdir():
        shutil.move(path, mounted)
    (mounted / "made").rmdir()
    assert export(request, Recorder()).status == "up-to-date"
    (mounted / "text/model.bin").write_bytes(b"")
    with pytest.raises(UsageError, match="mount point"):
        export(request, Recorder())


def test_a_folder_mounted_from_its_own_file_system_is_in_the_kernels_list(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    assert is_mount_point(Path("/srv/my model"), table)
    assert is_mount_point(Path("/"), table)
    assert not is_mount_point(Path("/srv"), table)
    assert not is_mount_point(tmp_path, tmp_path / "absent")


@pytest.mark.parametrize("name", ["loop", "loop/model", "n" * 999, "~nobody-of-this-name/x"])
def test_a_place_that_cannot_be_is_refused_on_one_line(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    with pytest.raises(UsageError, match=r"cannot be used .*; choose another --out") as error:
        export(request_for(checkpoint, Path(name)), Recorder())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["loop", "n" * 999, "./" + "n" * 999, "~nobody-of-this-name/x"])
def test_a_checkpoint_that_cannot_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    with pytest.raises(CheckpointError, match=r"does not exist|there is no folder"):
        export(request_for(name, tmp_path / "out"), Recorder())


def test_templates_beside_the_checkpoints_own_are_not_carried(
    own_checkpoint: Path, tmp_path: Path
) -> None:
    (own_checkpoint / "additional_chat_templates").mkdir()
    (own_checkpoint / "additional_chat_templates/default.jinja").write_text("other")
    export(request_for(own_checkpoint, tmp_path / "out"), Recorder())
    assert "additional_chat_templates" not in names(tmp_path / "out/processor")
