"""Log lines of the native library: straight to descriptor 2, past `sys.stderr`."""

from __future__ import annotations

import os


def _line(level: str, place: str, message: str) -> None:
    stamp = "2026-01-01-00:00:00.000.000"
    text = f"[{level}] LITE({os.getpid()},7f00,python):{stamp} [{place} {message}\n"
    os.write(2, text.encode())


def warning(place: str, message: str) -> None:
    _line("WARNING", place, message)


def error(place: str, message: str) -> None:
    _line("ERROR", place, message)
