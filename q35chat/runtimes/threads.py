"""How many CPUs this process may really use: its affinity and its cgroup's quota.

The number of cores of the host is neither, and a thread without a core costs every other one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def usable_cpus(cgroups: Path = _CGROUPS, membership: Path = _MEMBERSHIP) -> int:
    """Whole CPUs, at least 1."""
    has_affinity = hasattr(os, "sched_getaffinity")
    available = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(1, min([available, *map(int, _quotas(cgroups, membership))]))


def _quotas(cgroups: Path, membership: Path) -> Iterator[float]:
    """Every quota from the process's group up to the root, in CPUs."""
    for line in _read(membership).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers == "":
            for folder in _upwards(cgroups, group):
                yield from _quota_v2(folder)
        elif "cpu" in controllers.split(","):
            for mount in (cgroups / controllers, cgroups / "cpu"):
                for folder in _upwards(mount, group):
                    yield from _quota_v1(folder)


def _upwards(root: Path, group: str) -> Iterator[Path]:
    """`root/a/b`, `root/a`, `root`. Inside a container only the root may be there."""
    parts = [part for part in group.split("/") if part not in ("", "..")]
    for length in range(len(parts), -1, -1):
        yield root.joinpath(*parts[:length])


def _quota_v2(folder: Path) -> Iterator[float]:
    words = _read(folder / "cpu.max").split()
    if len(words) == 2 and words[0].isdecimal():
        yield int(words[0]) / int(words[1])


def _quota_v1(folder: Path) -> Iterator[float]:
    quota = _read(folder / "cpu.cfs_quota_us").strip()
    period = _read(folder / "cpu.cfs_period_us").strip()
    if quota.isdecimal() and period.isdecimal():
        yield int(quota) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
