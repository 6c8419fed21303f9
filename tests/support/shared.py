"""What is slow to make and only read is made once a run, by whichever worker needs it first."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(
    folders: pytest.TempPathFactory, what: object, make: Callable[[Path], object]
) -> Path:
    """The folder that `make` has filled: one for each `what`, told apart by its text."""
    run = folders.getbasetemp()
    shared = (run.parent if "PYTEST_XDIST_WORKER" in os.environ else run) / "shared"
    shared.mkdir(exist_ok=True)
    folder = shared / hashlib.sha256(str(what).encode()).hexdigest()[:16]
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.with_suffix(".ready").exists():
            folder.mkdir(exist_ok=True)
            make(folder)
            folder.with_suffix(".ready").touch()
    return folder
