"""A file is what its first bytes say, whatever it is called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from q35chat.file_kinds import is_picture
from tests.vision.files import FORMATS, sample


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", ["photo", "photo.jfif", "photo.jpe", "photo.mpo", "photo.txt"])
def test_a_picture_is_one_under_any_name(tmp_path: Path, kind: str, name: str) -> None:
    (tmp_path / name).write_bytes(sample(kind))
    assert is_picture(tmp_path / name)


@pytest.mark.parametrize(
    "start",
    [
        b"\x00\x00\x00\x18ftypheic0000",
        b"\x00\x00\x00\x18ftypmif1\x00\x00\x00\x00heic",
        b"<!-- drawn --><svg/>",
        b"\xff\x0a..",
    ],
)
def test_a_picture_that_is_not_read_here_is_one_so_that_it_can_be_named(
    tmp_path: Path, start: bytes
) -> None:
    (tmp_path / "IMG_0001.HEIC").write_bytes(start)
    assert is_picture(tmp_path / "IMG_0001.HEIC")


@pytest.mark.parametrize(
    "start", [b"", b"notes", b"%PDF-1.7", b"<?xml version='1.0'?><a/>", b"\x00\x00\x00\x18ftypisom"]
)
def test_another_file_is_none_though_its_name_says_so(tmp_path: Path, start: bytes) -> None:
    (tmp_path / "photo.png").write_bytes(start)
    assert not is_picture(tmp_path / "photo.png")


def test_what_is_no_file_is_no_picture_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    for path in (tmp_path / "pipe.png", tmp_path, tmp_path / "missing.png", Path("a\0.png")):
        assert not is_picture(path)
