"""What comes from the terminal, no faster than the application takes it.

A paste that the terminal does not mark is a key for each of its characters, and each waits with all
that follows from it. Here the reader of the terminal waits instead, and the rest of the paste with
whoever sends it. Knows no screen.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

AT_ONCE: Final = 10_000
_LOOKS_UP_S: Final = 0.1


class PatientDriver(LinuxDriver):
    """Sends the next keys when the first `AT_ONCE` are done with."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sent = 0

    def send_message(self, message: Message) -> None:
        """Hand the message to the application; the thread that reads keys may have to wait."""
        super().send_message(message)
        self._sent += 1
        if self._sent % AT_ONCE == 0 and threading.current_thread() is self._key_thread:
            self._wait()

    def _wait(self) -> None:
        """Until the loop has come around, which it does when the keys before are done with, or
        until the application ends: then it waits for this thread."""
        around = threading.Event()
        self._loop.call_soon_threadsafe(around.set)
        while not around.wait(_LOOKS_UP_S) and not self.exit_event.is_set():
            pass


def driver_for(usual: type[Driver]) -> type[Driver]:
    """A patient one where `usual` is the one of terminals."""
    return PatientDriver if usual is LinuxDriver else usual
