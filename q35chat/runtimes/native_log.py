"""Descriptor 2 of the process, sent to a file, so that a native library cannot tear the screen.

The file also holds the only real cause behind the library's generic errors. Python's own standard
error goes on to the terminal, through a descriptor of its own. Knows the form of log lines of
MindSpore Lite and CANN and nothing else of them.
"""

from __future__ import annotations

import io
import logging
import os
import re
import sys
import threading
from pathlib import Path
from typing import TextIO

_STDERR = 2
_KEPT_BYTES = 8 << 20
# `[ERROR] ... [file:line] Function] message` of the one, `[file:line]thread Function: message` of
# the other
_LINE = re.compile(
    r"^\[ERROR\].*?\[[^\]]*:\d+\]\s*(?:\d+\s+)?[\w:~<>]*?[\]:]\s+(?P<message>.*)$", re.MULTILINE
)
_LOCK = threading.Lock()
_installed: list[NativeLog] = []


class NativeLog:
    """A log file that takes what native code writes to descriptor 2. One per process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._terminal: int | None = None
        self._streams: list[tuple[str, TextIO | None]] = []
        self._handler: logging.Handler | None = None

    def install(self) -> None:
        """Begin. Must run before a screen takes `sys.__stderr__`; a second call does nothing."""
        with _LOCK:
            if self._descriptor is not None:
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
            self._descriptor = os.open(self.path, flags, 0o600)
            if os.fstat(self._descriptor).st_size > _KEPT_BYTES:
                os.ftruncate(self._descriptor, 0)
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
        """Where the log ends now, in bytes."""
        return 0 if self._descriptor is None else os.fstat(self._descriptor).st_size

    def since(self, mark: int) -> str:
        """What was written after `mark`."""
        if self._descriptor is None:
            return ""
        length = max(self.mark() - mark, 0)
        return os.pread(self._descriptor, length, mark).decode("utf-8", "replace")

    def cause(self, mark: int) -> str | None:
        """The first error written after `mark`: those that follow only pass it on."""
        if self.mark() <= mark:
            return None
        found = _LINE.search(self.since(mark))
        return " ".join(found["message"].split()) if found else None

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


def native_log(path: Path) -> NativeLog:
    """The process's native log: the one that is there, else a new one in `path`, installed."""
    if not _installed:
        log = NativeLog(path)
        log.install()
        _installed.append(log)
    return _installed[0]
