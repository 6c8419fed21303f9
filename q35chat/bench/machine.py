"""Memory: how fast this machine reads it, and how much of it this process holds.

Reading every weight once is the ceiling of a decode step. Bandwidth is measured in a process of
its own, `python -m q35chat.bench.machine`, so that what it reads is in no one's peak memory.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import psutil

from q35chat.engine.session import Array
from q35chat.processes import python_command, python_environment

_TIMEOUT_S = 60
_LEAST, _TIMES_CACHE, _PASSES = 256 << 20, 8, 9
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_STATUS = Path("/proc/self/status")


def measured_apart(threads: int) -> float | None:
    """Bytes per second, measured in another process; None where that does not work here."""
    command = python_command("-m", "q35chat.bench.machine", str(threads))
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            timeout=_TIMEOUT_S,
            check=True,
            env=python_environment(),
            start_new_session=True,
        )
        return float(result.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def read_bandwidth(threads: int, size: int, passes: int = _PASSES) -> float:
    """Bytes per second that `threads` threads read, the median of some passes over `size` bytes."""
    memory: Array = np.ones(max(size // 4, threads), np.float32)
    parts = np.array_split(memory, threads)
    with ThreadPoolExecutor(threads) as pool:
        times = []
        for _ in range(passes):
            started = perf_counter()
            list(pool.map(np.max, parts))
            times.append(perf_counter() - started)
    return memory.nbytes / statistics.median(times)


def working_set(caches: Path = _CACHES) -> int:
    """Bytes that are many times the largest cache."""
    sizes = [_size(file) for file in caches.glob("index*/size")]
    return max(_LEAST, _TIMES_CACHE * max(sizes, default=0))


def _size(file: Path) -> int:
    text = file.read_text(encoding="ascii").strip()
    unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
    digits = text.rstrip("KM")
    return int(digits) * unit if digits.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes. `peak` is the most that was ever resident; `files` of `resident` are mapped files,
    None where the system does not tell."""

    resident: int
    peak: int
    files: int | None


def memory(status: Path = _STATUS) -> Memory:
    """The numbers of now. The peak is that of this program alone, not of what started it."""
    try:
        lines = status.read_text(encoding="ascii").splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        found = (int(fields[name].split()[0]) << 10 for name in ("VmRSS", "VmHWM", "RssFile"))
        return Memory(*found)
    except (OSError, KeyError):
        resident = int(psutil.Process().memory_info().rss)
        unit = 1 if sys.platform == "darwin" else 1024
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        return Memory(resident, max(most, resident), None)


def resident() -> int:
    """Resident bytes of now, cheaply."""
    return int(psutil.Process().memory_info().rss)


if __name__ == "__main__":
    sys.stdout.write(f"{read_bandwidth(int(sys.argv[1]), working_set())}\n")
