"""What `npu-smi info` says: the NPUs of this machine and the memory they have left.

Knows the tool's table and nothing of models.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass

_TIMEOUT_S = 20
_NAME = re.compile(r"^\|\s*(?P<npu>\d+)\s+(?P<name>[0-9A-Za-z]+)\s*\|\s*(?P<health>\w+)\s*\|")
_CHIP = re.compile(
    r"^\|\s*(?P<chip>\d+)\s+(?P<device>\d+)\s*\|[^|]*\|.*?(?P<used>\d+)\s*/\s*(?P<total>\d+)\s*\|"
)


@dataclass(frozen=True, slots=True)
class Npu:
    """One chip: its device id, name and health, and its memory in bytes."""

    device_id: int
    name: str
    health: str
    used: int
    total: int

    @property
    def free(self) -> int:
        """Bytes that are left."""
        return self.total - self.used


def npus() -> tuple[Npu, ...]:
    """The chips of this machine; none where the tool is missing or fails."""
    tool = shutil.which("npu-smi")
    if tool is None:
        return ()
    try:
        done = subprocess.run(
            [tool, "info"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return parse(done.stdout)


def parse(table: str) -> tuple[Npu, ...]:
    """The chips in the output of `npu-smi info`: two rows each, the second with the memory."""
    found: list[Npu] = []
    name, health = "", ""
    for line in table.splitlines():
        if row := _CHIP.match(line):
            used, total = (int(row[part]) << 20 for part in ("used", "total"))
            found.append(Npu(int(row["device"]), name, health, used, total))
        elif row := _NAME.match(line):
            name, health = row["name"], row["health"]
    return tuple(found)


def free_bytes(device_id: int) -> int | None:
    """Memory left on one chip; None where that cannot be known."""
    return next((npu.free for npu in npus() if npu.device_id == device_id), None)
