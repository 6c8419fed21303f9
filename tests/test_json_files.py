from __future__ import annotations

import os
from pathlib import Path

import pytest

from q35chat import json_reader
from q35chat.json_reader import parse_json, read_json


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"a": [1, "\xc3\xa4"]}')
    assert read_json(tmp_path / "a.json") == {"a": [1, "ä"]}


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(ValueError, match="a pipe or a device"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("path", ["/dev/zero", "/tmp"])
def test_what_is_no_file_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="not a file"):
        read_json(Path(path))


def test_a_file_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, why in {
        "absent": "No such file",
        "loop": "symbolic links",
        "n" * 999: "too long",
    }.items():
        with pytest.raises(ValueError, match=why):
            read_json(tmp_path / name)


def test_a_large_file_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_reader, "MOST_BYTES", 4)
    (tmp_path / "a.json").write_text("[  ]")
    assert read_json(tmp_path / "a.json") == []
    (tmp_path / "a.json").write_text("[   ]")
    with pytest.raises(ValueError, match="more than 4 bytes"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("text", ["[" * 20_000, "[" * 65 + "]" * 65, '{"a":' * 65 + "1" + "}" * 65])
def test_what_is_nested_deep_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="nested more than 64 deep"):
        parse_json(text)


def test_what_is_nested_a_little_is_read() -> None:
    value = parse_json("[" * 64 + "]" * 64)
    for _ in range(63):
        (value,) = value
    assert value == []
