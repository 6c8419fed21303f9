"""Python, processors, memory, and what the terminal can do."""

from __future__ import annotations

import locale
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import psutil

from q35chat import __version__
from q35chat.diagnosis.checks import Check
from q35chat.runtimes.threads import usable_cpus

_GIB = 1 << 30


def python() -> Iterator[Check]:
    """The interpreter, the system, and the packages a chat is made of."""
    yield Check("python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield Check("system", "info", f"{platform.system()} {platform.release()} {platform.machine()}")
    yield Check("q35chat", "ok", __version__)
    for name in ("numpy", "transformers", "textual"):
        yield _package(name)


def processor() -> Iterator[Check]:
    """Threads that may be used, and memory."""
    threads, seen = usable_cpus(), os.cpu_count() or 1
    limited = f", {seen} in the machine" if seen != threads else ""
    yield Check("threads", "info", f"{threads} for this process{limited}")
    memory = psutil.virtual_memory()
    free = f"{memory.available / _GIB:.1f} GiB free of {memory.total / _GIB:.1f}"
    yield Check("memory", "info", free)


def terminal() -> Iterator[Check]:
    """What a screen would find."""
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    name = os.environ.get("TERM", "none")
    if interactive and name != "dumb":
        size = shutil.get_terminal_size()
        yield Check("terminal", "ok", f"{name}, {size.columns} x {size.lines}")
    else:
        yield Check(
            "terminal",
            "info",
            f"TERM {name}, {'a terminal' if interactive else 'no terminal here'}",
            "the screen needs one; ask, and chat --plain do not",
        )
    colours = os.environ.get("COLORTERM") in ("truecolor", "24bit")
    yield Check("colours", "info", "16 million" if colours else "256 or fewer")
    encoding = locale.getpreferredencoding(False)
    utf8 = encoding.lower().replace("-", "") == "utf8"
    advice = "" if utf8 else "set LANG to a UTF-8 locale, such as C.UTF-8"
    yield Check("encoding", "ok" if utf8 else "warning", encoding, advice)


def _package(name: str) -> Check:
    try:
        return Check(name, "ok", version(name))
    except PackageNotFoundError:
        return Check(name, "info", "not installed as a package")
