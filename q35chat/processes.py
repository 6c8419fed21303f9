"""Command lines that start this program and its Python: what a user types for it, and what it runs
in a process of its own.

A leaf: knows nothing of bundles, commands and screens. A child imports nothing from the folder that
it is started in: that may be a model from anywhere.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from q35chat.text import quoted

REAL_MODEL: Final = "Qwen/Qwen3.5-0.8B"
DEFAULT_OUT: Final = "out"
_NAME: Final = "q35chat"


def program() -> str:
    """What to type to run this program, quoted for a shell: its name where that is on PATH, else
    the path of the running one, relative where it lies below the current folder."""
    if shutil.which(_NAME) is not None:
        return _NAME
    for script in (Path(sys.argv[0]), Path(sys.executable).with_name(_NAME)):
        if script.name == _NAME and script.is_file() and os.access(script, os.X_OK):
            return quoted(_typed(script))
    return f"{quoted(_typed(Path(sys.executable)))} -m {_NAME}"


def export_command() -> str:
    """Gets a real model."""
    return f"{program()} export {REAL_MODEL} --out {DEFAULT_OUT}/"


def install_command(package: str) -> str:
    """Puts a package where this program's Python finds it."""
    return f"{quoted(_typed(Path(sys.executable)))} -m pip install {quoted(package)}"


def _typed(path: Path) -> str:
    try:
        path = path.absolute()
        below = path.relative_to(Path.cwd())
    except (OSError, ValueError):
        return str(path)
    return str(below) if below.parts[1:] else f"./{below}"


def python_command(*arguments: str) -> list[str]:
    """A command line of this interpreter, which does not look into the working folder."""
    return [sys.executable, "-P", *arguments]


def folder_of_children() -> str | None:
    """The working folder of a child: this process's own, or, where that is gone and libraries
    would not load in it, the root."""
    try:
        Path.cwd()
    except OSError:
        return os.sep
    return None


def python_environment() -> dict[str, str]:
    """This process's environment, under which a child can import what this process can, and
    speaks UTF-8 through its streams whatever the user's terminal speaks."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONIOENCODING": "utf-8:backslashreplace",
    }
