"""What is asked of the machine: memory and how fast it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from q35chat.bench import machine as bandwidth
from q35chat.bench.machine import Memory, measured_apart, memory, read_bandwidth, working_set

STATUS = """\
Name:\tpython
VmHWM:\t    300 kB
VmRSS:\t    200 kB
RssAnon:\t    150 kB
RssFile:\t     50 kB
Threads:\t2
"""


def test_memory_is_the_kernels_account(tmp_path: Path) -> None:
    (tmp_path / "status").write_text(STATUS, encoding="ascii")

    assert memory(tmp_path / "status") == Memory(200 << 10, 300 << 10, 50 << 10)


def test_memory_is_known_where_the_kernel_keeps_no_account(tmp_path: Path) -> None:
    found = memory(tmp_path / "none")

    assert found.peak >= found.resident > 0
    assert found.files is None


def test_the_working_set_is_many_times_the_largest_cache(tmp_path: Path) -> None:
    for number, size in enumerate(("32K", "128M", "")):
        (tmp_path / f"index{number}").mkdir()
        (tmp_path / f"index{number}" / "size").write_text(size, encoding="ascii")

    assert working_set(tmp_path) == 8 * (128 << 20)
    assert working_set(tmp_path / "none") == 256 << 20


def test_a_bandwidth_counts_the_bytes_of_all_threads() -> None:
    assert read_bandwidth(3, 1 << 20, passes=2) > 0


def test_a_bandwidth_is_measured_in_another_process() -> None:
    found = measured_apart(1)

    assert found is not None
    assert found > 0


def test_a_bandwidth_that_cannot_be_measured_is_none() -> None:
    assert measured_apart(0) is None


def test_a_measurement_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth, "_TIMEOUT_S", 0.0)

    assert measured_apart(1) is None
