"""Work for the time between two turns, in a thread of its own, ended when the model is wanted.

Knows nothing of what the work is. Failures are logged: nobody waits for the result. What still
runs when the interpreter ends is stopped before: a thread that comes back from native code after
that would end the process with an abort.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections.abc import Callable

Work = Callable[[Callable[[], bool]], None]

_log = logging.getLogger(__name__)


class IdleWork:
    """One piece of work at a time. It is given a function that tells when to stop."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        _all.add(self)

    def start(self, work: Work) -> None:
        """Begin `work` once the one before has ended."""
        self.stop()
        stop = self._stop = threading.Event()
        self._thread = threading.Thread(
            target=_run, args=(work, stop.is_set), name="q35chat-idle", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Ask the work to stop and wait until it has."""
        self._stop.set()
        self.wait()

    def wait(self) -> None:
        """Wait for the end of the work."""
        thread = self._thread
        if thread is not None:
            thread.join()


_all: weakref.WeakSet[IdleWork] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for work in list(_all):
        work.stop()


def _run(work: Work, stopped: Callable[[], bool]) -> None:
    try:
        work(stopped)
    except Exception:  # noqa: BLE001  (the next turn meets it again, and says so)
        _log.debug("work between two turns failed", exc_info=True)
