"""Locks between processes that vanish with their holder, however it dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from q35chat.errors import StoreError


@contextmanager
def exclusive(path: Path, busy: str | None = None) -> Iterator[None]:
    """Hold the lock file `path`. Waits for another holder, or raises StoreError(`busy`)."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"The lock file {path} cannot be opened: {error.strerror}.") from error
    try:
        _lock(handle, busy)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, busy: str | None) -> None:
    if busy is None:
        fcntl.flock(handle, fcntl.LOCK_EX)
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StoreError(busy) from error
