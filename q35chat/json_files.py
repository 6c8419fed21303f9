"""JSON that others wrote, read without surprises: no pipe is waited for, and nothing is taken that
is far larger or deeper than what this program needs.

A leaf. Knows no file's fields.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

MOST_BYTES: Final = 32 << 20
MOST_LEVELS: Final = 64
_TOO_DEEP: Final = f"it is nested more than {MOST_LEVELS} deep"


def read_json(path: Path) -> Any:  # noqa: ANN401  (whatever the file holds)
    """What the JSON file at `path` holds. Raises ValueError, whose text is the reason."""
    return parse_json(read_bytes(path))


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401
    """What `text` holds. Raises ValueError for what is not JSON or too deep."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if _is_deep(value):
        raise ValueError(_TOO_DEEP)
    return value


def read_bytes(path: Path) -> bytes:
    """The bytes of a small file. Raises ValueError, whose text is the reason."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise ValueError("it is a folder, a pipe or a device, not a file")
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
    return content


def _is_deep(value: object) -> bool:
    level = _containers([value])
    for _ in range(MOST_LEVELS):
        level = [
            child
            for parent in level
            for child in _containers(parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return False
    return True


def _containers(values: Iterable[Any]) -> list[dict[str, Any] | list[Any]]:
    return [value for value in values if isinstance(value, dict | list)]
