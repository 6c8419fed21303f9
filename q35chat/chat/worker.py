"""A worker does work that nobody waits for, in a thread that lives as long as there is some.

Knows nothing of what the work is. When the interpreter ends, the work is asked to stop and waited
for: what is not written yet is written, and no thread comes back from native code after that, which
would end the process with an abort.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections.abc import Callable

Work = Callable[[threading.Event], None]
"""Something to do, given the event that asks it to stop. What must be done whole ignores it."""

_log = logging.getLogger(__name__)


class Worker:
    """Does one piece of work at a time, and of those that wait only the newest.

    Work that fails is logged at the level `failures`: whoever needs its result meets it again.
    """

    def __init__(self, failures: int = logging.ERROR) -> None:
        self._failures = failures
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._next: tuple[Work, threading.Event] | None = None
        self._thread: threading.Thread | None = None
        _workers.add(self)

    def soon(self, work: Work) -> None:
        """Do `work`, after what is being done now and in place of what waits; returns at once."""
        with self._lock:
            if self._stop.is_set():
                self._stop = threading.Event()
            self._next = work, self._stop
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="q35chat-work", daemon=True)
                thread.start()
                self._thread = thread

    def stop(self) -> None:
        """Ask what is being done and what waits to stop; wait until nothing is left to be done."""
        with self._lock:
            self._stop.set()
        self.wait()

    def wait(self) -> None:
        """Wait until nothing is left to be done."""
        while (thread := self._thread) is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._next is None:
                    self._thread = None
                    return
                (work, stop), self._next = self._next, None
            try:
                work(stop)
            except Exception:  # noqa: BLE001 - whoever needs the result meets it again
                _log.log(self._failures, "work in the background failed", exc_info=True)


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for worker in list(_workers):
        worker.stop()
