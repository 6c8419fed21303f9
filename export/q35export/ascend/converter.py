"""MindSpore Lite's converter: where it is, how it is called, and one call with its log in a file.

Knows what a failed log says went wrong, and what to do about it; nothing of bundles.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from q35chat.errors import ExportError, Option, UsageError
from q35chat.text import quoted
from q35chat.user_input import typed_path
from q35export.ascend import lite_worker
from q35export.ascend.cann_python import CannPython, environment, find_python, own_python
from q35export.staging import sigterm_raises, undisturbed

TOOL = "converter_lite"
SUCCESS = "CONVERT RESULT SUCCESS"
_IN_PACKAGE = Path("tools/converter/converter") / TOOL
_POLL_S = 0.05
_KEEPS_INT64 = {"KEEP_ORIGIN_DTYPE": "1"}
_FULL_BYTES = 1 << 20
DISK_FULL = "the disk is full: free space beside the bundle and run the command again"

_NO_MEMORY = (
    "the converter ran out of memory, it needs two to four times the weights: close other programs "
    "or add swap"
)
_KILLED = (-9, 137)
_CAUSES: tuple[tuple[str, str], ...] = (
    (r"No space left on device|ENOSPC|errno = 28", DISK_FULL),
    (r"bad_alloc|[Cc]annot allocate memory|[Oo]ut of memory|MemoryError", _NO_MEMORY),
    (
        (
            r"Failed to create acl pass|libascend\w*\.so|libge_\w+\.so|libgraph\.so"
            r"|ASCEND_OPP_PATH|Get soc|soc version"
        ),
        "CANN or the NPU was not found: convert on the NPU host, after its set_env.sh",
    ),
    (
        (
            r"(Chunk|Recurrent)GatedDeltaRule.*(not|[Nn]o |[Uu]nsupport|[Ff]ail|[Ii]nvalid)"
            r"|(not|[Nn]o |[Uu]nsupport|[Ff]ail).*(Chunk|Recurrent)GatedDeltaRule"
            r"|EZ3003|E19010|custom op\w* .*not (found|exist)"
        ),
        (
            "a Custom operator has no kernel: install its vendor package and name it in "
            "ASCEND_CUSTOM_OPP_PATH; both delta rules from one checkout"
        ),
    ),
    (
        r"No module named '(?P<module>[\w.]+)'",
        (
            "the Python that CANN compiles with has no module {module}: install it there, or name "
            "another with {python}"
        ),
    ),
    (
        r"valid Python SO|executing the cmd python3",
        (
            "CANN cannot open the shared library of the first python3 on PATH: name one that has "
            "its libpython with {python}"
        ),
    ),
    (
        r"dynamicDims|dynamic_dims|input_shape.*(mismatch|not|invalid)|SetGraphInputShape",
        "the converter did not take the shapes or gears in its configuration file",
    ),
)
_UNKNOWN = re.compile(r"(?:not support onnx data type|OP TYPE:)\s*(?P<name>\w+)")
# `[ERROR] ... [file:line] Function] message`, or CANN's `[file:line]thread Function: message`
_ERROR = re.compile(
    r"^\[(?:ERROR|CRITICAL)\].*?\[[^\]]*:\d+\]\s*(?:\d+\s+)?[\w:~<>]*?[\]:]\s+(?P<message>.+)$",
    re.MULTILINE,
)
_MORE = "; for CANN's own messages set ASCEND_SLOG_PRINT_TO_STDOUT=1 and run it again"


@dataclass(frozen=True, slots=True)
class ConversionJob:
    """One graph to convert; all paths absolute. `output` is without a suffix. With `keeps_int64`
    constants of 64 bits stay so wide, of which the converter else makes 32."""

    name: str
    graph: Path
    config: Path
    output: Path
    log: Path
    keeps_int64: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Converter:
    """A way to convert: the beginning of a command line, what it is for messages, the folder of its
    libraries, the version of CANN, and the Python that CANN compiles operators with."""

    command: tuple[str, ...]
    name: str
    libraries: Path | None = None
    cann: str | None = None
    python: Path | None = None

    def check(self) -> None:
        """Refuse a Python that CANN cannot use, where its version is known. Raises ExportError."""
        if self.cann is None:
            return
        if self.python is None:
            raise ExportError(
                f"CANN {self.cann} needs a python3 on PATH; name one with {Option.PYTHON}"
            )
        CannPython.probe(self.python).check(self.cann)

    def environment(self) -> dict[str, str]:
        """The variables that it runs with. A Python is asked for its library only for a CANN."""
        library = CannPython.probe(self.python).library if self.cann and self.python else None
        return environment(self.python, filter(None, (self.libraries, library)))

    def arguments(self, graph: Path, config: Path, output: Path) -> list[str]:
        """The whole command line."""
        return [
            *self.command,
            "--fmk=ONNX",
            "--optimize=ascend_oriented",
            "--saveType=MINDIR",
            f"--modelFile={graph}",
            f"--outputFile={output}",
            f"--configFile={config}",
        ]


def find_converter(
    option: str | None = None, python: str | None = None, cann: str | None = None
) -> Converter | None:
    """The tool that was named, or that of PATH or MSLITE_HOME, or the Python package's; None where
    there is none. It runs with the Python that was named, else with the first one on PATH that is
    not this program's, for version `cann` of CANN.

    Raises UsageError for a named one that is not there, and ExportError.
    """
    outside = find_python(python)
    home = os.environ.get("MSLITE_HOME")
    found = shutil.which(option or TOOL)
    if option is not None and found is None:
        found = shutil.which(typed_path(option))
    if option is not None and found is None:
        raise UsageError(
            f"{Option.CONVERTER} {option} is no program; name the {TOOL} of your package"
        )
    if found is None and home and (Path(home) / _IN_PACKAGE).is_file():
        found = str(Path(home) / _IN_PACKAGE)
    if found is not None:
        # The package keeps its libraries beside the tool, and does not find them by itself.
        libraries = Path(found).resolve().parent.parent / "lib"
        return Converter((found,), found, libraries if libraries.is_dir() else None, cann, outside)
    for one in filter(None, (outside, None if python else own_python())):
        if CannPython.probe(one).has_lite:
            command = (str(one), str(lite_worker.__file__))
            return Converter(command, f"mindspore_lite.Converter of {one}", None, cann, one)
    return None


def command_text(graph: str, config: str, output: str, *, keeps_int64: bool = False) -> str:
    """What to type on the NPU host, in the bundle's folder."""
    line = Converter((TOOL,), TOOL).arguments(Path(graph), Path(config), Path(output))
    return _typed(line, _KEEPS_INT64 if keeps_int64 else {})


def _typed(line: Iterable[str], variables: Mapping[str, str]) -> str:
    return " ".join([f"{name}={value}" for name, value in variables.items()] + [*map(quoted, line)])


def run_converter(converter: Converter, job: ConversionJob, on_poll: Callable[[], None]) -> None:
    """Convert one graph; `on_poll` is called again and again meanwhile.

    Everything that is printed goes to `job.log`. Whatever ends this call, the converter ends with
    it. Raises ExportError with the cause.
    """
    code = _run(converter, job, on_poll)
    text = job.log.read_text(encoding="utf-8", errors="replace")
    if code != 0 or SUCCESS not in text:
        full = shutil.disk_usage(job.log.parent).free < _FULL_BYTES  # the log may tell nothing
        cause = DISK_FULL if full else explain(text, code)
        raise ExportError(f"{job.name} was not converted: {cause}; log: {job.log}")


def _run(converter: Converter, job: ConversionJob, on_poll: Callable[[], None]) -> int:
    """The exit code of the converter's process, which does not outlive this call."""
    line = converter.arguments(job.graph, job.config, job.output)
    variables = _KEEPS_INT64 if job.keeps_int64 else {}
    process: subprocess.Popen[bytes] | None = None
    with sigterm_raises(), job.log.open("wb") as log:
        log.write((_typed(line, variables) + "\n").encode())
        log.flush()
        try:
            with undisturbed():  # in a group of its own, so that what it starts ends with it
                process = subprocess.Popen(
                    line,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=converter.environment() | variables,
                    process_group=0,
                )
            while process.poll() is None:
                on_poll()
                time.sleep(_POLL_S)
            return process.returncode
        except OSError as error:
            if process is None:
                what = f"{converter.name} does not start: {error.strerror}"
                raise ExportError(what) from error
            raise
        finally:
            if process is not None:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    with undisturbed():
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def explain(log: str, code: int) -> str:
    """One line: what happened and what to do; from the converter's `log` and exit `code`."""
    if code in _KILLED:
        return _NO_MEMORY
    unknown = sorted(set(_UNKNOWN.findall(log)))
    if unknown == ["Custom"]:
        return "this converter has no Custom operators: use MindSpore Lite 2.9 or newer"
    if unknown:
        return (
            f"this converter does not know {', '.join(unknown)}: use MindSpore Lite 2.9 or newer, "
            "and export the bundle again if it is older than this program"
        )
    for pattern, advice in _CAUSES:
        if found := re.search(pattern, log):
            return advice.format(python=Option.PYTHON, **found.groupdict())
    if error := _ERROR.search(log):
        return " ".join(error["message"].split()) + _MORE
    lines = [line for line in log.splitlines() if line.strip()]
    return f"exit code {code}" + (f": {lines[-1].strip()}" if lines else "") + _MORE
