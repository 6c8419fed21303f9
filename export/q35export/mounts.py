"""Whether a folder is a mount point, which can be filled but never replaced.

Must not know what is written there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

_TABLE: Final = Path("/proc/self/mountinfo")
_PLACE: Final = 4
_ESCAPE: Final = re.compile(rb"\\([0-7]{3})")


def is_mount_point(folder: Path, table: Path = _TABLE) -> bool:
    """Whether something is mounted at `folder`, an absolute path without links.

    `table` is the kernel's list: a folder that is mounted from the same file system looks like any
    other without it.
    """
    if os.path.ismount(folder):
        return True
    try:
        lines = table.read_bytes().splitlines()
    except OSError:
        return False
    places = (line.split()[_PLACE] for line in lines if len(line.split()) > _PLACE)
    return os.fsencode(folder) in {_ESCAPE.sub(_byte, place) for place in places}


def _byte(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 8) & 0xFF])
