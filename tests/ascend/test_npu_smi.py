from __future__ import annotations

from pathlib import Path

import pytest

from q35chat.ascend.npu_smi import Npu, free_bytes, npus, parse

TABLE = """\
+--------------------------------------------------------------------------------------------------+
| npu-smi 24.1.rc2                                 Version: 24.1.rc2                               |
+-------------------------------+-----------------+------------------------------------------------+
| NPU     Name                  | Health          | Power(W)     Temp(C)     Hugepages-Usage(page) |
| Chip    Device                | Bus-Id          | AICore(%)    Memory-Usage(MB)                  |
+===============================+=================+================================================+
| 1       310P3                 | OK              | NA           43          0     / 0             |
| 0       0                     | 0000:01:00.0    | 0            1702 / 21527                      |
+-------------------------------+-----------------+------------------------------------------------+
| 1       310P3                 | Warning         | NA           44          0     / 0             |
| 1       1                     | 0000:01:00.0    | 7            20000 / 21527                     |
+===============================+=================+================================================+
"""


def install(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = folder / "npu-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_chips_are_read_from_the_table() -> None:
    assert parse(TABLE) == (
        Npu(0, "310P3", "OK", 1702 << 20, 21527 << 20),
        Npu(1, "310P3", "Warning", 20000 << 20, 21527 << 20),
    )


def test_memory_left_is_known_by_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "table").write_text(TABLE, encoding="utf-8")
    install(tmp_path, f"cat {tmp_path}/table", monkeypatch)

    assert free_bytes(1) == 1527 << 20
    assert free_bytes(2) is None


@pytest.mark.parametrize("script", ["exit 1", "echo dcmi module initialize failed", "echo; echo"])
def test_a_tool_that_tells_nothing_means_no_chips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    install(tmp_path, script, monkeypatch)

    assert npus() == ()


def test_without_the_tool_there_are_no_chips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    assert npus() == ()
