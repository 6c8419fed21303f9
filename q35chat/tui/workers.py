"""The threads of the screen's workers, and how long the end of the program waits for them.

What a worker does in native code cannot be stopped: a model goes on loading when nobody wants it
any more. Knows nothing of what workers do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

PATIENCE_S: Final = 0.55
"""Enough for what was shown of a stopped answer to be kept, also where its step does not end."""
_NAME: Final = "q35chat-screen"
T = TypeVar("T")


def attempt(work: Callable[[], T]) -> T | Exception:
    """What `work` gives or raises: whatever fails, the screen says so."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001
        return error


class WorkerThreads(ThreadPoolExecutor):
    """An event loop's default executor that is left after `patience_s`, whatever still runs."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        super().__init__(thread_name_prefix=_NAME, initializer=self._remember)
        self._patience_s = patience_s
        self._begun: list[threading.Thread] = []

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:
        """Begin nothing more; with `wait`, wait for what runs, but not for ever."""
        super().shutdown(wait=False, cancel_futures=cancel_futures)
        until = time.monotonic() + (self._patience_s if wait else 0.0)
        for thread in self._begun:
            thread.join(max(0.0, until - time.monotonic()))

    def _remember(self) -> None:
        self._begun.append(threading.current_thread())
