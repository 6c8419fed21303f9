"""Asking the terminal what it is, before the screen takes it.

The last question is one that every terminal answers, so the wait ends with its answer. What the
user typed meanwhile is kept. Nothing may ask once the screen reads the keyboard.
"""

from __future__ import annotations

import os
import re
import select
import signal
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from unicodedata import category

NAME, CELL, FENCE = "\x1b[>q", "\x1b[16t", "\x1b[c"
TIMEOUT_S: Final = 2.0

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_FENCE_ANSWER: Final = re.compile(rb"\x1b\[\?([\d;]*)c")
_NAME_ANSWER: Final = re.compile(rb"\x1bP>\|([\x20-\x7e]*)\x1b\\")
_CELL_ANSWER: Final = re.compile(rb"\x1b\[6;(\d{1,5});(\d{1,5})t")
_ANY_SEQUENCE: Final = re.compile(rb"\x1b(?:\[[\x20-\x3f]*[\x40-\x7e]|[PX^_\]][^\x1b]*\x1b\\|.)?")


@dataclass(frozen=True, slots=True)
class Answers:
    """What the terminal said; `typed` is what the user wrote at the same time."""

    name: str = ""
    sixel: bool = False
    cell: tuple[int, int] | None = None
    typed: str = ""


def ask(keyboard: int, screen: int, timeout_s: float = TIMEOUT_S) -> Answers:
    """Ask through two descriptors of one terminal; empty answers where there is none."""
    try:
        with _unechoed(keyboard):
            os.write(screen, f"{NAME}{CELL}{FENCE}".encode())
            return parse(_read(keyboard, timeout_s))
    except (OSError, termios.error):
        return Answers()


def parse(said: bytes) -> Answers:
    """Tell answers from typed text. Without the last answer the others count for nothing."""
    typed = _ANY_SEQUENCE.sub(b"", said).decode("utf-8", "ignore")
    typed = "".join(character for character in typed if category(character) != "Cc")
    fence, name, cell = (
        pattern.search(said) for pattern in (_FENCE_ANSWER, _NAME_ANSWER, _CELL_ANSWER)
    )
    if fence is None:
        return Answers(typed=typed)
    size = (int(cell[2]), int(cell[1])) if cell is not None else (0, 0)
    return Answers(
        name[1].decode("ascii") if name is not None else "",
        b"4" in fence[1].split(b";")[1:],
        size if all(size) else None,
        typed,
    )


def _read(keyboard: int, timeout_s: float) -> bytes:
    said, until = b"", time.monotonic() + timeout_s
    while _FENCE_ANSWER.search(said) is None:
        ready, _, _ = select.select([keyboard], [], [], max(0.0, until - time.monotonic()))
        part = os.read(keyboard, 4096) if ready else b""
        if not part:
            break
        said += part
    return said


@contextmanager
def _unechoed(keyboard: int) -> Iterator[None]:
    """While inside, keys come at once and are not shown; what would end the process waits."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        with _changed(keyboard):
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


@contextmanager
def _changed(keyboard: int) -> Iterator[None]:
    before = termios.tcgetattr(keyboard)
    now = termios.tcgetattr(keyboard)
    now[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(keyboard, termios.TCSANOW, now)
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSANOW, before)
