from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from q35chat.files import locked, replace_file
from tests.support.disk import full_after


@pytest.mark.parametrize("content", ["x" * 5000, b"x" * 5000])
def test_a_full_disk_leaves_the_old_file_as_it_was(tmp_path: Path, content: str | bytes) -> None:
    file = tmp_path / "result.json"
    file.write_text("old")
    with full_after(1000), pytest.raises(OSError, match="File too large"):
        replace_file(file, content)
    assert file.read_text() == "old"
    assert [*tmp_path.iterdir()] == [file]


def test_a_full_disk_leaves_no_half_of_a_new_file(tmp_path: Path) -> None:
    with full_after(1000), pytest.raises(OSError, match="File too large"):
        replace_file(tmp_path / "result.json", "x" * 5000)
    assert [*tmp_path.iterdir()] == []


def test_text_and_bytes_are_written_as_they_are(tmp_path: Path) -> None:
    replace_file(tmp_path / "text", "中文\r\n")
    replace_file(tmp_path / "bytes", b"\xff\x00")
    assert (tmp_path / "text").read_bytes() == "中文\r\n".encode()
    assert (tmp_path / "bytes").read_bytes() == b"\xff\x00"


def test_a_file_keeps_its_permissions_and_a_new_one_gets_those_asked_for(tmp_path: Path) -> None:
    old, new, plain = tmp_path / "old", tmp_path / "new", tmp_path / "plain"
    old.touch()
    old.chmod(0o640)
    mask = os.umask(0o022)
    try:
        replace_file(old, "x")
        replace_file(new, "x", mode=0o600)
        replace_file(plain, "x")
    finally:
        os.umask(mask)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (old, new, plain)] == [
        0o640,
        0o600,
        0o644,
    ]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_a_link(tmp_path: Path, there: bool) -> None:
    (tmp_path / "elsewhere").mkdir()
    file, link = tmp_path / "elsewhere" / "file", tmp_path / "link"
    if there:
        file.write_text("old")
    link.symlink_to(file)
    replace_file(link, "new")
    assert link.is_symlink()
    assert file.read_text() == "new"


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    replace_file(pipe, "to whoever reads")
    reader.join(30.0)
    assert read == ["to whoever reads"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_long_name_is_no_obstacle(tmp_path: Path) -> None:
    file = tmp_path / ("的" * 83)
    replace_file(file, "x")
    assert file.read_text() == "x"


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "gone" / "file", "x")


def test_what_a_killed_process_left_of_a_file_goes_and_what_is_being_written_stays(
    tmp_path: Path,
) -> None:
    left, other, writing = (
        tmp_path / name
        for name in (".a[1].json.0a1b2c3d.new", ".b.json.0a1b2c3d.new", ".a[1].json.12345678.new")
    )
    for path in (left, other, writing):
        path.write_text("half")
    with locked(writing):
        replace_file(tmp_path / "a[1].json", "whole")
    assert set(tmp_path.iterdir()) == {other, writing, tmp_path / "a[1].json"}
