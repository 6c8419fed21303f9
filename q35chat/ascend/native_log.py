"""Descriptor 2 of the process, sent to a file, so that a native library cannot tear the screen.

The file also holds the only real cause behind the library's generic errors, so each process has one
of its own. Python's own standard error goes on to the terminal, through a descriptor of its own.
Knows the form of log lines of MindSpore Lite and CANN and nothing else of them.
"""

from __future__ import annotations

import io
import itertools
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from q35chat.files import is_at, lock

_STDERR = 2
_KEPT_BYTES = 8 << 20
_KEPT_FILES = 3
# `[ERROR] ... [file:line] Function] message` of the one, `[file:line]thread Function: message` of
# the other
_LINE = re.compile(
    r"^\[ERROR\].*?\[[^\]]*:\d+\]\s*(?:\d+\s+)?[\w:~<>]*?[\]:]\s+(?P<message>.*)$", re.MULTILINE
)
_LOCK = threading.Lock()
_installed: list[NativeLog] = []


class NativeLog:
    """A log file that takes what native code writes to descriptor 2. One per process at a time.

    `path` is that of the process's own file: `family` with the process's number in its name.
    """

    def __init__(self, family: Path) -> None:
        self._family = family
        self.path = next(_names(family))
        self._descriptor: int | None = None
        self._terminal: int | None = None
        self._streams: list[tuple[str, TextIO | None]] = []
        self._handler: logging.Handler | None = None

    def install(self) -> None:
        """Begin an empty file, and remove those of processes that are gone, but for the latest.

        Must run before a screen takes `sys.__stderr__`; a second call does nothing.
        """
        with _LOCK:
            if self._descriptor is not None:
                return
            self._family.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor, self.path = _claimed(self._family)
            os.ftruncate(self._descriptor, 0)
            _remove_left(self._family)
            self._terminal = os.dup(_STDERR)
            self._move_streams(self._terminal)
            os.dup2(self._descriptor, _STDERR)
            self._catch_warnings()

    def remove(self) -> None:
        """Give descriptor 2 back."""
        with _LOCK:
            if self._descriptor is None or self._terminal is None:
                return
            os.dup2(self._terminal, _STDERR)
            for name, stream in self._streams:
                setattr(sys, name, stream)
            if self._handler is not None:
                logging.getLogger().removeHandler(self._handler)
                self._handler.close()
            os.close(self._descriptor)
            os.close(self._terminal)
            self._descriptor = self._terminal = self._handler = None
            self._streams = []
            _installed[:] = [log for log in _installed if log is not self]

    def mark(self) -> int:
        """Where the log ends now, in bytes. One that has grown too long begins anew."""
        size = self._size()
        if self._descriptor is None or size <= _KEPT_BYTES:
            return size
        os.ftruncate(self._descriptor, 0)
        return 0

    def since(self, mark: int) -> str:
        """What was written after `mark`, or since the log began anew."""
        size = self._size()
        if self._descriptor is None or size == mark:
            return ""
        start = mark if mark < size else 0
        return os.pread(self._descriptor, size - start, start).decode("utf-8", "replace")

    def cause(self, mark: int) -> str | None:
        """The first error written after `mark`: those that follow only pass it on."""
        if self._size() == mark:
            return None
        found = _LINE.search(self.since(mark))
        return " ".join(found["message"].split()) if found else None

    def _size(self) -> int:
        return 0 if self._descriptor is None else os.fstat(self._descriptor).st_size

    def _move_streams(self, terminal: int) -> None:
        """Python's own streams over descriptor 2 write to the terminal itself from now on."""
        for name in ("stderr", "__stderr__"):
            stream = getattr(sys, name)
            if _descriptor_of(stream) == _STDERR:
                stream.flush()
                self._streams.append((name, stream))
                copy = os.fdopen(os.dup(terminal), "w", buffering=1, encoding=stream.encoding,
                                 errors=stream.errors)  # fmt: skip
                setattr(sys, name, copy)

    def _catch_warnings(self) -> None:
        """MindSpore Lite warns through the root logger, which would print without a handler."""
        if not logging.getLogger().handlers:
            self._handler = logging.FileHandler(self.path, encoding="utf-8")
            logging.getLogger().addHandler(self._handler)


def _descriptor_of(stream: TextIO | None) -> int | None:
    try:
        return None if stream is None else stream.fileno()
    except (OSError, ValueError, io.UnsupportedOperation):
        return None


def _names(family: Path) -> Iterator[Path]:
    """Names for the file of this process; the first, unless one in another container has it."""
    own = f"{family.stem}-{os.getpid()}"
    yield family.with_name(f"{own}{family.suffix}")
    for number in itertools.count(2):
        yield family.with_name(f"{own}-{number}{family.suffix}")


def _claimed(family: Path) -> tuple[int, Path]:
    """A descriptor of the process's file, which is locked as long as that is open anywhere."""
    for path in _names(family):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        if _lock(descriptor) and is_at(descriptor, path):
            return descriptor, path
        os.close(descriptor)
    raise AssertionError


def _remove_left(family: Path) -> None:
    """Remove the files that nobody writes any more; the latest stay, errors have named them."""
    left = []
    for path in family.parent.glob(f"{family.stem}*{family.suffix}"):
        with suppress(OSError):  # another process may be removing them too
            descriptor = os.open(path, os.O_RDWR)
            if _lock(descriptor):
                left.append((os.fstat(descriptor).st_mtime, path, descriptor))
            else:
                os.close(descriptor)
    for place, (_, path, descriptor) in enumerate(sorted(left, reverse=True)):
        if place >= _KEPT_FILES:
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Whether nobody else has the file, as far as the file system knows locks."""
    with suppress(OSError):
        try:
            lock(descriptor, wait=False)
        except BlockingIOError:
            return False
    return True


def native_log(family: Path) -> NativeLog:
    """The process's native log: the one that is there, else a new one of `family`, installed."""
    if not _installed:
        log = NativeLog(family)
        log.install()
        _installed.append(log)
    return _installed[0]
