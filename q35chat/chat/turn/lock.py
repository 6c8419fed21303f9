"""The turn lock lets one answer at a time over one model, which can be stopped from any thread.

A turn that nobody consumes any more is ended by the next one; one that is computing in another
thread makes the next one fail. Between turns the model may do idle work, which ends when a turn
comes.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from q35chat.chat.events import Event
from q35chat.chat.worker import Work, Worker
from q35chat.errors import UsageError


class StoppableTurn:
    """A turn that can be stopped from any thread, and the iterator that computes it.

    `stop` asks it to end after its current step, `stopped` tells whether it was asked.
    """

    def __init__(self) -> None:
        asked = threading.Event()
        self.stop, self.stopped = asked.set, asked.is_set
        self._body: weakref.ref[Generator[Event]] | None = None

    def follow(self, body: Generator[Event]) -> Iterator[Event]:
        """Remember what computes this run, as long as somebody else holds it."""
        self._body = weakref.ref(body)
        return body

    def end(self) -> None:
        """End a run that waits between two events. Raises ValueError while it computes."""
        body = self._body() if self._body else None
        if body is not None:
            body.close()


class TurnLock:
    """Lets one turn at a time compute."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: StoppableTurn | None = None
        self._idle = Worker(logging.DEBUG)

    @contextmanager
    def passing(self, run: StoppableTurn) -> Iterator[None]:
        """Hold the lock for `run`. Raises UsageError while another turn computes."""
        with self._lock:
            if self._current is not None:
                try:
                    self._current.end()
                except ValueError as error:
                    raise UsageError(
                        "An answer is still being written. Wait for it or stop it, then try again."
                    ) from error
            self._idle.stop()
            self._current = run
        try:
            yield
        finally:
            if self._current is run:
                self._current = None

    def when_idle(self, work: Work) -> None:
        """Begin `work` in another thread, unless a turn is on."""
        with self._lock:
            if self._current is None:
                self._idle.stop()
                self._idle.soon(work)

    def stop_idle(self) -> None:
        """End idle work: the program is about to leave."""
        with self._lock:
            self._idle.stop()

    def wait_idle(self) -> None:
        """Wait until idle work has ended by itself."""
        self._idle.wait()
