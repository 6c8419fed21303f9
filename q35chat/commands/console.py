"""Standard streams as the commands use them: what is a terminal, what is dim, what was closed,
and who else writes to them.

Knows streams and escape sequences; knows no command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from typing import Final, TextIO

from q35chat.ascend.options import log_path
from q35chat.text import safe_line, safe_text

_STANDARD: Final = (0, 1, 2)
_STDOUT: Final = 1
_SIZES: Final = ("COLUMNS", "LINES", "TERMINAL_WIDTH")
_MOST_DIGITS: Final = 4


@dataclass(frozen=True, slots=True)
class Console:
    """Where answers (`out`) and everything else (`err`) go."""

    out: TextIO
    err: TextIO

    @classmethod
    def standard(cls) -> Console:
        """The process's own streams; a closed one is replaced by nothing, not by a crash."""
        return cls(_usable(sys.stdout), _usable(sys.stderr))

    @property
    def err_is_terminal(self) -> bool:
        """Whether stderr understands cursor movement."""
        return is_terminal(self.err)

    @property
    def can_rewrite(self) -> bool:
        """Whether both streams understand cursor movement: a talk line by line goes to both."""
        return self.err_is_terminal and is_terminal(self.out)

    @property
    def err_has_colour(self) -> bool:
        """Whether stderr may be given dim text."""
        return self.err_is_terminal and not os.environ.get("NO_COLOR")

    def note(self, text: str) -> None:
        """One line for the user on stderr, made harmless."""
        self.err.write(safe_line(text, limit=1000) + "\n")
        self.err.flush()

    def say(self, text: str) -> None:
        """Lines for the user on stderr, made harmless."""
        self.err.write(safe_text(text) + "\n")
        self.err.flush()

    def show(self, text: str) -> None:
        """Lines of the result on stdout, made harmless."""
        self.out.write(safe_text(text) + "\n")


def fill_closed_streams() -> None:
    """Open the null device, for reading, in the place of each closed standard stream: no file that
    is opened later gets its number, and with it what native libraries print; and an answer that
    cannot be written fails.

    To be called before anything opens a file or takes `sys.stdout`.
    """
    for descriptor in _STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)
    if sys.stdout is None:
        sys.stdout = os.fdopen(_STDOUT, "w", encoding="utf-8", closefd=False)


def forget_impossible_size() -> None:
    """Take sizes that no terminal has out of the environment: they are believed before the
    terminal itself."""
    for name in _SIZES:
        said = os.environ.get(name)
        if said is not None and not (said.isascii() and said.isdigit() and _is_size(said)):
            del os.environ[name]


def protect_screen() -> None:
    """Send descriptor 2 to the log, where MindSpore Lite is installed and would write to it.

    To be called before anything takes `sys.stderr`, which moves to a descriptor of its own.
    """
    if find_spec("mindspore_lite") is not None:
        from q35chat.ascend.native_log import native_log

        native_log(log_path())


def keep_answers_apart() -> None:
    """Keep what a native library prints on descriptor 1 away from the answers: it goes where
    errors go, and `sys.stdout` to a descriptor of its own.

    To be called before anything takes `sys.stdout`.
    """
    if sys.stdout is None:
        return
    out = sys.stdout
    lines = 1 if isinstance(out, TextIOWrapper) and out.line_buffering else -1
    own = os.fdopen(os.dup(_STDOUT), "w", lines, encoding=out.encoding, errors=out.errors)
    if sys.stderr is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
    else:
        os.dup2(sys.stderr.fileno(), _STDOUT)
    sys.stdout = sys.__stdout__ = own  # type: ignore[misc]


def _is_size(digits: str) -> bool:
    digits = digits.lstrip("0")
    return bool(digits) and len(digits) <= _MOST_DIGITS


def is_terminal(stream: TextIO) -> bool:
    """Whether `stream` is a terminal that understands escape sequences."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _usable(stream: TextIO | None) -> TextIO:
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")
    return stream


class StatusLine:
    """One line on a terminal that is written over until it is cleared; nothing elsewhere.

    `in_lines` nothing is written over: each stage of the work is a line of its own, without the
    numbers that change.
    """

    def __init__(self, console: Console, *, in_lines: bool = False) -> None:
        self._console = console
        self._err = console.err
        self._on = console.err_is_terminal and not in_lines
        self._in_lines = in_lines and console.err.isatty()
        self._shown = self._stage = ""

    def show(self, text: str) -> None:
        """Replace the line by `text`."""
        if self._on:
            self._err.write(f"\r\x1b[K{safe_line(text, limit=78)}")
            self._err.flush()
            self._shown = text
        elif self._in_lines and text and (stage := text.partition(":")[0]) != self._stage:
            self._stage = stage
            self._console.note(f"{stage} …")

    def note(self, text: str) -> None:
        """A line for the user that stays; what is shown goes on below it."""
        shown = self._shown
        self.clear()
        self._console.note(text)
        if shown:
            self.show(shown)

    @contextmanager
    def showing(self, text: str) -> Iterator[None]:
        """Show `text` inside."""
        self.show(text)
        try:
            yield
        finally:
            self.clear()

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            self._err.write("\r\x1b[K")
            self._err.flush()
            self._shown = ""
