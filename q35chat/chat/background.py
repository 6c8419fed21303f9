"""Work that is soon to be done and that nobody waits for, in a thread that lives as long as it.

Knows nothing of what the work is. Failures are logged. What is still to be done when the
interpreter ends is done before.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections.abc import Callable

Work = Callable[[], None]

_log = logging.getLogger(__name__)


class Background:
    """One piece of work at a time, and only the newest of those that wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: Work | None = None
        self._thread: threading.Thread | None = None
        _all.add(self)

    def soon(self, work: Work) -> None:
        """Do `work`, after what is being done now and in place of what waits; returns at once."""
        with self._lock:
            self._next = work
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()

    def wait(self) -> None:
        """Wait until nothing is left to be done."""
        while (thread := self._thread) is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                work, self._next = self._next, None
                if work is None:
                    self._thread = None
                    return
            try:
                work()
            except Exception:  # noqa: BLE001 - the next call meets it again
                _log.exception("work in the background failed")


_all: weakref.WeakSet[Background] = weakref.WeakSet()


@atexit.register
def _wait_for_all() -> None:
    for background in list(_all):
        background.wait()
