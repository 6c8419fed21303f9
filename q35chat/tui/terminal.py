"""The terminal kept apart from what native libraries print.

The screen is drawn through a descriptor of its own; descriptor 2 goes to a log file while the
application runs, so that a library that writes there cannot tear the screen.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO, cast

import platformdirs

_STDERR: Final = 2
_MOST_KEPT: Final = 1 << 20


def log_path() -> Path:
    """Where native output goes."""
    return platformdirs.user_state_path("q35chat") / "native.log"


def _as_it_is(screen: TextIO) -> object:
    return screen


@contextmanager
def apart(path: Path, dress: Callable[[TextIO], object] = _as_it_is) -> Iterator[None]:
    """While inside, `sys.__stderr__` is the terminal and descriptor 2 is the file at `path`.

    `dress` may give a file that changes what is written to the terminal. Where the file at `path`
    cannot be written, descriptor 2 goes nowhere.
    """
    before = sys.__stderr__
    kept = os.dup(_STDERR)
    log = _open_log(path)
    with os.fdopen(os.dup(kept), "w", encoding="utf-8", errors="replace") as screen:
        sys.__stderr__ = cast("Any", dress(screen))  # type: ignore[misc]
        os.dup2(log, _STDERR)
        try:
            yield
        finally:
            os.dup2(kept, _STDERR)
            sys.__stderr__ = before  # type: ignore[misc]
            os.close(kept)
            os.close(log)


def _open_log(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        too_long = path.exists() and path.stat().st_size > _MOST_KEPT
        start = os.O_TRUNC if too_long else os.O_APPEND
        return os.open(path, os.O_WRONLY | os.O_CREAT | start, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)
