"""The terminal: kept apart from what native libraries print, and read no faster than is dealt with.

The screen is drawn through a descriptor of its own; descriptor 2 goes to a log file while the
application runs, so that a library that writes there cannot tear the screen. Of what a widget draws
nothing is obeyed, wherever its text comes from, and bytes that are no text are read as such.

A paste that the terminal does not mark is a key for each of its characters, and each waits with all
that follows from it. The reader of the terminal waits instead, and the rest of the paste with
whoever sends it. Knows no screen.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import sys
import threading
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TextIO, cast

import platformdirs
from rich.cells import get_character_cell_size
from rich.segment import Segment
from textual._xterm_parser import XTermParser
from textual.color import Color
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter
from textual.message import Message

from q35chat.text import HARMFUL
from q35chat.tui.clipboard_reading import ASK, TerminalAnswers

AT_ONCE: Final = 10_000
"""Keys that are read before the first of them is done with."""
ENTERS: Final = {
    "\x1b\r": "\x1b[13;3u",
    "\x1b[27;2;13~": "\x1b[13;2u",
    "\x1b[27;3;13~": "\x1b[13;3u",
}
"""Alt+Enter and Shift+Enter as other terminals send them, in the words of Kitty's protocol, which
Textual reads: without them they would be a plain Enter, which sends."""
_LOOKS_UP_S: Final = 0.1
_READ_AT_ONCE: Final = 4096
_STDOUT: Final = 1
_STDERR: Final = 2
_MOST_KEPT: Final = 1 << 20
_HUNG_UP: Final = 128 + signal.SIGHUP


def log_path() -> Path:
    """Where native output goes."""
    return platformdirs.user_state_path("q35chat") / "native.log"


@contextmanager
def apart(path: Path, dress: Callable[[TextIO], object] = lambda screen: screen) -> Iterator[None]:
    """While inside, `sys.__stderr__` is the terminal and descriptors 1 and 2 are the file at
    `path`.

    `dress` may give a file that changes what is written to the terminal. Where the file at `path`
    cannot be written, the descriptors go nowhere.
    """
    before = sys.__stderr__
    kept, out = os.dup(_STDERR), os.dup(_STDOUT)
    log = _open_log(path)
    screen = os.fdopen(os.dup(kept), "w", encoding="utf-8", errors="replace")
    sys.__stderr__ = cast("Any", dress(screen))  # type: ignore[misc]
    os.dup2(log, _STDERR)
    os.dup2(log, _STDOUT)
    try:
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.dup2(out, _STDOUT)
        os.close(out)
        sys.__stderr__ = before  # type: ignore[misc]
        os.close(kept)
        os.close(log)
        with suppress(OSError):  # what a terminal that is gone has not taken
            screen.close()


def _open_log(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        too_long = path.exists() and path.stat().st_size > _MOST_KEPT
        start = os.O_TRUNC if too_long else os.O_APPEND
        return os.open(path, os.O_WRONLY | os.O_CREAT | start, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


class Harmless(LineFilter):
    """Takes the last place of a line before the terminal: what would steer it stands as a sign or,
    where it took no cell, not at all, so that the line stays as wide as it was."""

    def apply(self, segments: list[Segment], _background: Color) -> list[Segment]:
        """The segments without anything a terminal would obey."""
        return [
            segment
            if segment.text.isprintable()
            else Segment(_STEERING.sub(_as_sign, segment.text), segment.style, segment.control)
            for segment in segments
        ]


HARMLESS: Final = Harmless()
_STEERING: Final = re.compile(f"{HARMFUL}|[\t\n]")


def _as_sign(match: re.Match[str]) -> str:
    return "\ufffd" * get_character_cell_size(match.group())


class PatientDriver(LinuxDriver):
    """Sends the next keys when the first `AT_ONCE` are done with."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sent = 0
        self._answers = TerminalAnswers()
        self._on_answer: Callable[[str], None] = lambda _: None

    def ask_clipboard(self, then: Callable[[str], None]) -> None:
        """Ask the terminal for its clipboard; where it answers, `then` gets the text in the
        application's thread."""
        self._on_answer, self._answers.asked = then, True
        self.write(ASK)

    def stop_asking(self) -> bool:
        """Take an answer for none any more; whether it was still waited for."""
        waited, self._answers.asked = self._answers.asked, False
        return waited

    def run_input_thread(self) -> None:
        """Hand on what comes from the terminal: bytes that are not UTF-8 as replacement characters,
        and nothing of what the parser cannot read.

        Raises EOFError when the terminal is gone.
        """
        parser, decoder = XTermParser(self._debug), getincrementaldecoder("utf-8")("replace")
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                data = b""
                if selector.select(_LOOKS_UP_S):
                    data = os.read(self.fileno, _READ_AT_ONCE)
                    if not data:
                        raise EOFError("the terminal is gone")
                text, answer = self._answers.take(decoder.decode(data))
                for sent, meant in ENTERS.items():
                    text = text.replace(sent, meant)
                if answer is not None:
                    self._app.call_later(self._on_answer, answer)
                try:
                    messages = [*(parser.feed(text) if text else ()), *parser.tick()]
                except Exception:  # noqa: BLE001 - a number in a sequence may be none of a key
                    messages, parser = [], XTermParser(self._debug)
                for message in messages:
                    self.process_message(message)

    def _run_input_thread(self) -> None:
        """Ends the application as SIGHUP does where the terminal is gone; one that cannot read a
        terminal for another reason has failed, and says so."""
        try:
            self.run_input_thread()
        except (EOFError, OSError):
            self._app.call_later(self._app.exit, None, _HUNG_UP)
        except Exception as error:  # noqa: BLE001 - whatever it is
            self._app.call_later(_raised, error)

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


def _raised(error: Exception) -> None:
    raise error


def driver_for(usual: type[Driver]) -> type[Driver]:
    """A patient one where `usual` is the one of terminals."""
    return PatientDriver if usual is LinuxDriver else usual
