"""The libraries that run graphs: ONNX Runtime, MindSpore Lite, and the converter.

Libraries are imported in a process of their own: a broken native library ends that one.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from q35chat.children import python_command, python_environment
from q35chat.diagnosis.checks import Check

_TIMEOUT_S = 60
_ONNXRUNTIME = (
    "import json, onnxruntime as o; "
    "print(json.dumps({'version': o.__version__, 'missing': [], "
    "'note': ', '.join(o.get_available_providers())}))"
)
_LITE = (
    "import json; from q35chat.runtimes import mindspore_lite as m; "
    "from importlib import import_module; lib = import_module('mindspore_lite'); "
    "print(json.dumps({'version': m.library_version(lib), "
    "'missing': m.missing_calls(lib), 'note': ''}))"
)


@dataclass(frozen=True, slots=True)
class Library:
    """What an import in a child told: `version` None means that it cannot be imported."""

    version: str | None
    missing: tuple[str, ...] = ()
    note: str = ""


def onnxruntime() -> Iterator[Check]:
    """What the CPU needs."""
    found = look(_ONNXRUNTIME)
    if found.version is None:
        yield Check("onnxruntime", "missing", found.note, "pip install onnxruntime")
    else:
        yield Check("onnxruntime", "ok", f"{found.version} ({found.note})")


def lite_library() -> Library:
    """MindSpore Lite's package."""
    return look(_LITE)


def mindspore_lite(found: Library) -> Iterator[Check]:
    """What the NPU needs."""
    if found.version is None:
        yield Check(
            "mindspore_lite",
            "missing",
            found.note,
            "install the wheel of 2.7 or newer that belongs to your CANN and Python",
        )
    elif found.missing:
        yield Check(
            "mindspore_lite",
            "warning",
            f"{found.version}, which has no {', '.join(found.missing)}",
            "2.7 or newer is needed: device tensors and outputs in place came later",
        )
    else:
        yield Check("mindspore_lite", "ok", found.version)


def converter(name: str | None) -> Iterator[Check]:
    """What `convert` would use."""
    if name is None:
        yield Check(
            "converter",
            "info",
            "none",
            "only needed to convert here: put converter_lite on PATH, or set MSLITE_HOME",
        )
    else:
        yield Check("converter", "ok", name)


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
