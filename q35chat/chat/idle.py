"""Work for the time between two turns, in a thread of its own, ended when the model is wanted.

Knows nothing of what the work is. Failures are logged: nobody waits for the result.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

Work = Callable[[Callable[[], bool]], None]

_log = logging.getLogger(__name__)


class IdleWork:
    """One piece of work at a time. It is given a function that tells when to stop."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

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


def _run(work: Work, stopped: Callable[[], bool]) -> None:
    try:
        work(stopped)
    except Exception:  # noqa: BLE001  (the next turn meets it again, and says so)
        _log.debug("work between two turns failed", exc_info=True)
