"""Python, processors, memory, what the terminal can do, and the library that runs graphs.

Native libraries are imported in a process of their own: a broken one ends that process.
"""

from __future__ import annotations

import json
import locale
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import psutil

from q35chat import __version__
from q35chat.diagnosis.checks import Check
from q35chat.errors import Option, Remedy
from q35chat.processes import python_command, python_environment
from q35chat.runtimes.threads import usable_cpus
from q35chat.text import readable_size

_GIB = 1 << 30
_TIMEOUT_S = 60
_ONNXRUNTIME = (
    "import json, onnxruntime as o; "
    "print(json.dumps({'version': o.__version__, 'missing': [], "
    "'note': ', '.join(o.get_available_providers())}))"
)
_MULTIPLICATION = "from q35chat.runtimes.multiplication import main; main()"


@dataclass(frozen=True, slots=True)
class Library:
    """What an import in a child told: `version` None means that it cannot be imported."""

    version: str | None
    missing: tuple[str, ...] = ()
    note: str = ""


def python() -> Iterator[Check]:
    """The interpreter, the system, and the packages a chat is made of."""
    yield Check("python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield Check("system", "info", f"{platform.system()} {platform.release()} {platform.machine()}")
    yield Check("q35chat", "ok", __version__)
    for name in ("numpy", "transformers", "textual"):
        try:
            yield Check(name, "ok", version(name))
        except PackageNotFoundError:
            yield Check(name, "info", "not installed as a package")


def processor() -> Iterator[Check]:
    """Threads that may be used, and memory."""
    threads, seen = usable_cpus(), os.cpu_count() or 1
    limited = f", {seen} in the machine" if seen != threads else ""
    yield Check("threads", "info", f"{threads} for this process{limited}")
    memory = psutil.virtual_memory()
    free = f"{memory.available / _GIB:.1f} GiB free of {memory.total / _GIB:.1f}"
    yield Check("memory", "info", free)
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= most < memory.total:
        what = f"{readable_size(most)} for a process"
        yield Check("ulimit -v", "warning", what, "give it more where a library does not load")


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
            f"the screen needs one; ask, and {Option.PLAIN} do not",
        )
    colours = os.environ.get("COLORTERM") in ("truecolor", "24bit")
    yield Check("colours", "info", "16 million" if colours else "256 or fewer")
    encoding = locale.getpreferredencoding(False)
    utf8 = encoding.lower().replace("-", "") == "utf8"
    advice = "" if utf8 else "set LANG to a UTF-8 locale, such as C.UTF-8"
    yield Check("encoding", "ok" if utf8 else "warning", encoding, advice)


def onnxruntime() -> Iterator[Check]:
    """What the CPU needs."""
    found = look(_ONNXRUNTIME)
    if found.version is None:
        yield Check("onnxruntime", "missing", found.note, "pip install onnxruntime")
    else:
        yield Check("onnxruntime", "ok", f"{found.version} ({found.note})")
        yield _multiplication(look(_MULTIPLICATION))


def _multiplication(found: Library) -> Check:
    """Whether rounded weights are multiplied rightly on this processor."""
    if found.version is None:
        return Check("multiplication", "warning", found.note)
    if found.missing:
        what = f"wrong on this processor: {', '.join(found.missing)}"
        return Check("multiplication", "damaged", what, Remedy.EXPORT_FP32.words())
    return Check("multiplication", "ok", "int4 and int8 come out as they should")


def look(program: str) -> Library:
    """Run `program`, which prints one JSON object at the end, in a process of its own."""
    try:
        done = subprocess.run(
            python_command("-c", program),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
            env=python_environment(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Library(None, note=f"does not answer ({type(error).__name__})")
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        return Library(None, note=f"crashes when it is imported ({name})")
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        return Library(None, note=lines[-1].strip())
    try:
        facts = json.loads(done.stdout.strip().splitlines()[-1])
        return Library(facts["version"], tuple(facts["missing"]), facts["note"])
    except (IndexError, ValueError, KeyError, TypeError):
        return Library(None, note="answers in no known way")
