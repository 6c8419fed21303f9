"""How an export shows its progress: a protocol, bars for a terminal, plain lines elsewhere.

Must not know what is exported; sees component names and bytes only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from q35chat.text import readable_size, safe_text

_ALL_TENTHS = 10


class Reporter(Protocol):
    """Told by the pipeline what happens, in order, from one thread."""

    def note(self, text: str) -> None:
        """One line for the user."""

    def begin(self, component: str, total: int) -> None:
        """`component` starts; `total` bytes will be written."""

    def advance(self, component: str, count: int) -> None:
        """`count` more bytes of `component` are written."""

    def end(self, component: str) -> None:
        """`component` is complete."""


class PlainReporter:
    """One line at the start, one when another tenth of the way is done, and one at the end of each
    component. Lines say how far it is really, which may be well beyond the tenth."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._total = 0
        self._done = 0
        self._shown = 0
        self._started = 0.0

    def note(self, text: str) -> None:
        """Print the line."""
        print(safe_text(text), file=self._stream, flush=True)

    def begin(self, component: str, total: int) -> None:
        """Print the size and start counting."""
        self._total, self._done, self._shown = total, 0, 0
        self._started = time.monotonic()
        self.note(f"{component}: writing {readable_size(total)}")

    def advance(self, component: str, count: int) -> None:
        """Print a line when another tenth is done."""
        self._done += count
        percent = self._done * 100 // max(self._total, 1)
        if self._shown < percent // 10 < _ALL_TENTHS:
            self._shown = percent // 10
            self.note(
                f"{component}: {percent} %, {readable_size(self._done)} of "
                f"{readable_size(self._total)}{self._time_left()}"
            )

    def end(self, component: str) -> None:
        """Print the size, and how long it took."""
        took = _seconds(time.monotonic() - self._started, " in {:.0f} s")
        self.note(f"{component}: done, {readable_size(self._total)}{took}")

    def _time_left(self) -> str:
        """From the speed so far."""
        left = (time.monotonic() - self._started) * (self._total / self._done - 1)
        return _seconds(left, ", {:.0f} s left")


def _seconds(seconds: float, words: str) -> str:
    """`words` with the number; nothing where it is less than a second."""
    return words.format(seconds) if seconds >= 1 else ""


class BarReporter:
    """A bar per component with bytes, speed and time left, while its `progress` is entered."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            DownloadColumn,
            Progress,
            TaskID,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self.progress = Progress(
            TextColumn("{task.description:>8}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(file=stream),
        )
        self._tasks: dict[str, TaskID] = {}

    def note(self, text: str) -> None:
        """Print the line above the bars."""
        self.progress.console.print(safe_text(text), markup=False, highlight=False, soft_wrap=True)

    def begin(self, component: str, total: int) -> None:
        """Add a bar."""
        self._tasks[component] = self.progress.add_task(component, total=total)

    def advance(self, component: str, count: int) -> None:
        """Move the bar."""
        self.progress.advance(self._tasks[component], count)

    def end(self, component: str) -> None:
        """Fill the bar."""
        task = self._tasks[component]
        total = next(item.total for item in self.progress.tasks if item.id == task)
        self.progress.update(task, completed=total or 0)


@contextmanager
def reporter_for(stream: TextIO) -> Iterator[Reporter]:
    """Bars where `stream` is a terminal, plain lines elsewhere."""
    if not stream.isatty():
        yield PlainReporter(stream)
        return
    bars = BarReporter(stream)
    with bars.progress:
        yield bars
