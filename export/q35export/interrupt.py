"""SIGTERM as an exception, so that a stopped export cleans up as Ctrl+C does.

And cleaning up that neither of them cuts short: an export may fail first, for example because its
reader is gone, and be told to stop while it cleans up.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def sigterm_raises() -> Iterator[None]:
    """Raise SystemExit(143) on SIGTERM inside the block; in a side thread do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl+C and SIGTERM wait until the block's end; in a side thread do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handled = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not None]
    previous = [(n, signal.signal(n, lambda number, _: came.append(number))) for n in handled]
    try:
        yield
    finally:
        for number, handler in previous:
            signal.signal(number, handler)
        for last in came[-1:]:
            signal.raise_signal(last)


def _stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise SystemExit(128 + number)
