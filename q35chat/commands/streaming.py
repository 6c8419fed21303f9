"""Work in a worker thread while the main thread shows events and answers Ctrl+C at once.

A native graph run holds back Python's signal handlers, so nothing heavy runs in the main thread.
The first Ctrl+C asks the work to stop, the second one kills the process.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType
from typing import TypeVar

T = TypeVar("T")


def in_worker(items: Iterable[T]) -> Iterator[T]:
    """Consume `items` in a worker thread and yield them here; errors are raised here too."""
    queue: SimpleQueue[tuple[T] | BaseException | None] = SimpleQueue()

    def work() -> None:
        try:
            for item in items:
                queue.put((item,))
            queue.put(None)
        except BaseException as error:  # noqa: BLE001  (handed to the main thread as it is)
            queue.put(error)

    threading.Thread(target=work, name="q35chat-work", daemon=True).start()
    while isinstance(entry := queue.get(), tuple):
        yield entry[0]
    if entry is not None:
        raise entry


def call_in_worker(function: Callable[[], T]) -> T:
    """The result of `function`, called in a worker thread."""
    return next(in_worker(function() for _ in range(1)))


@contextmanager
def stop_on_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Inside, the first Ctrl+C calls `stop` and goes on, the second one kills the process."""
    with _stop_on_first((signal.SIGINT,), stop):
        yield


@contextmanager
def stop_on_termination(stop: Callable[[], None]) -> Iterator[None]:
    """Inside, the first SIGTERM or SIGHUP calls `stop` and goes on, the second one kills.

    After the first, SystemExit is raised on the way out, with 128 and the number of the signal.
    """
    heard = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    with _stop_on_first(heard, stop) as received:
        yield
    if received:
        raise SystemExit(128 + received[0])


@contextmanager
def _stop_on_first(numbers: Iterable[int], stop: Callable[[], None]) -> Iterator[list[int]]:
    """Inside, the first signal of each number calls `stop` and is listed; the next one acts."""
    received: list[int] = []

    def first(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        received.append(number)
        stop()

    before = {number: signal.signal(number, first) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def work_is_running() -> bool:
    """Whether a worker thread is still inside native code and would hold up a normal exit."""
    return any(thread.name.startswith("q35chat-") for thread in threading.enumerate())
