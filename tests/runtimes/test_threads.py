from __future__ import annotations

import os
from pathlib import Path

import pytest

from q35chat.runtimes.threads import usable_cpus


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def cpus(tmp_path: Path, membership: str, files: dict[str, str]) -> int:
    (tmp_path / "cgroup").write_text(membership)
    for name, content in files.items():
        path = tmp_path / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return usable_cpus(tmp_path / "fs", tmp_path / "cgroup")


def test_without_a_quota_the_affinity_decides(tmp_path: Path) -> None:
    assert cpus(tmp_path, "0::/\n", {"cpu.max": "max 100000\n"}) == 8


def test_a_machine_without_cgroups_is_fine(tmp_path: Path) -> None:
    assert usable_cpus(tmp_path / "none", tmp_path / "none") == 8


def test_a_machine_without_affinity_counts_its_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)

    assert usable_cpus(tmp_path, tmp_path / "none") == 6


@pytest.mark.parametrize(
    ("quota", "expected"), [("200000", 2), ("250000", 2), ("50000", 1), ("9900000", 8)]
)
def test_a_v2_quota_is_rounded_down_to_whole_cpus(
    tmp_path: Path, quota: str, expected: int
) -> None:
    assert cpus(tmp_path, "0::/box\n", {"box/cpu.max": f"{quota} 100000\n"}) == expected


def test_the_tightest_group_on_the_way_up_counts(tmp_path: Path) -> None:
    files = {"a/cpu.max": "300000 100000", "a/b/cpu.max": "500000 100000"}

    assert cpus(tmp_path, "0::/a/b\n", files) == 3


def test_inside_a_container_the_root_has_the_quota(tmp_path: Path) -> None:
    assert cpus(tmp_path, "0::/../../far\n", {"cpu.max": "400000 100000"}) == 4


@pytest.mark.parametrize("mount", ["cpu,cpuacct", "cpu"])
def test_a_v1_quota_counts(tmp_path: Path, mount: str) -> None:
    files = {
        f"{mount}/docker/cpu.cfs_quota_us": "300000\n",
        f"{mount}/docker/cpu.cfs_period_us": "100000\n",
    }

    assert cpus(tmp_path, "5:cpu,cpuacct:/docker\n4:memory:/x\n", files) == 3


def test_a_v1_group_without_quota_is_free(tmp_path: Path) -> None:
    files = {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}

    assert cpus(tmp_path, "5:cpu:/\n", files) == 8
