"""SIGTERM as an exception, so that stopped work cleans up as Ctrl+C does; and so SIGHUP, which a
closed terminal sends.

And cleaning up that none of them cuts short: an export may fail first, for example because its
reader is gone, and be told to stop while it cleans up.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def sigterm_raises() -> Iterator[None]:
    """Raise SystemExit (143 on SIGTERM, 129 on SIGHUP unless it is ignored, as under nohup) inside
    the block; in a side thread do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [n for n in _ENDING if signal.getsignal(n) not in {None, signal.SIG_IGN}]
    previous = [(n, signal.signal(n, _stop)) for n in heard]
    try:
        yield
    finally:
        for number, handler in previous:
            signal.signal(number, handler)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl+C, SIGTERM and SIGHUP wait until the block's end; in a side thread do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handled = [n for n in (signal.SIGINT, *_ENDING) if signal.getsignal(n) is not None]
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
