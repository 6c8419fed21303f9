"""What to type next, for a bundle: the command that converts it, or the one that chats with it.

Knows which graphs an NPU cannot run yet, and how a folder is written for a shell.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from q35chat.bundle import Manifest

_CONVERTED_TARGET = "ascend-310p"


def left_to_convert(manifest: Manifest) -> list[str]:
    """The names of the graphs that have to be converted before anything can run them."""
    if manifest.target != _CONVERTED_TARGET:
        return []
    return [name for name, file in manifest.graphs.items() if file.endswith(".onnx")]


def chat_command(folder: Path) -> str:
    """Opens the chat with the bundle in `folder`."""
    return f"q35chat --model-dir {shlex.quote(str(folder))}"


def convert_command(folder: Path) -> str:
    """Converts the bundle in `folder` for its NPU."""
    return f"q35chat convert {shlex.quote(str(folder))}"


def next_step(folder: Path, manifest: Manifest) -> str:
    """One line for the user: what the bundle in `folder` is ready for, and the command."""
    if left_to_convert(manifest):
        return f"convert it on the NPU's host: {convert_command(folder)}"
    return f"chat with it: {chat_command(folder)}"


def as_typed_here(folder: Path) -> Path:
    """`folder`, an absolute path, as one would type it in the folder where this runs."""
    try:
        return folder.relative_to(Path.cwd().resolve())
    except ValueError:
        return folder
