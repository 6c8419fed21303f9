"""Which target suits this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

_DEVICES = Path("/dev")


def default_target(devices: Path = _DEVICES) -> str:
    """ "ascend-310p" where an NPU's device file or tool is found, else "cpu"."""
    has_device = any(
        path.name.removeprefix("davinci").isdecimal() for path in devices.glob("davinci*")
    )
    return "ascend-310p" if has_device or shutil.which("npu-smi") else "cpu"
