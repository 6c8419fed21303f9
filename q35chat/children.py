"""How this program starts Python in a process of its own: the command, and what it can import.

A child imports nothing from the folder that it is started in: that may be a model from anywhere.
"""

from __future__ import annotations

import os
import sys


def python_command(*arguments: str) -> list[str]:
    """A command line of this interpreter, which does not look into the working folder."""
    return [sys.executable, "-P", *arguments]


def python_environment() -> dict[str, str]:
    """This process's environment, under which a child can import what this process can, and
    speaks UTF-8 through its streams whatever the user's terminal speaks."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONIOENCODING": "utf-8:backslashreplace",
    }
