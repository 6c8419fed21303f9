"""Memory of this process: what is resident, how much of it is mapped files, and the most so far."""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

_STATUS = Path("/proc/self/status")


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
        return _parsed(status.read_text(encoding="ascii"))
    except (OSError, KeyError):
        resident = int(psutil.Process().memory_info().rss)
        unit = 1 if sys.platform == "darwin" else 1024
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        return Memory(resident, max(most, resident), None)


def resident() -> int:
    """Resident bytes of now, cheaply."""
    return int(psutil.Process().memory_info().rss)


def _parsed(text: str) -> Memory:
    """The kernel's own account, in KiB by name."""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    kib = {
        name: int(value.split()[0])
        for name, value in fields.items()
        if name in ("VmRSS", "VmHWM", "RssFile")
    }
    return Memory(kib["VmRSS"] << 10, kib["VmHWM"] << 10, kib["RssFile"] << 10)
