"""What to type next, for a bundle: the command that converts it, or the one that chats with it.

Knows which graphs an NPU cannot run yet, what a bundle lacks, and how a folder is written for a
shell.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from q35chat.bundle.bundle import Manifest
from q35chat.bundle.library import models_folder
from q35chat.commands.export_command import adding
from q35chat.errors import Q35Error
from q35chat.processes import DEFAULT_OUT, program
from q35chat.settings import load_settings
from q35chat.text import quoted

_CONVERTED_TARGET = "ascend-310p"
_ANSWERING = {"cpu": ("text",), _CONVERTED_TARGET: ("prefill", "decode")}


def left_to_convert(manifest: Manifest) -> list[str]:
    """The names of the graphs that have to be converted before anything can run them."""
    if manifest.target != _CONVERTED_TARGET:
        return []
    return [name for name, file in manifest.graphs.items() if file.endswith(".onnx")]


def chat_command(folder: Path) -> str:
    """Opens the chat with the bundle in `folder`, which need not be named where it is the one that
    is opened anyway."""
    if _is_default(folder):
        return program()
    named = folder.absolute().parent == models_folder() and not Path(folder.name).exists()
    return f"{program()} --model-dir {quoted(folder.name if named else str(folder))}"


def convert_command(folder: Path) -> str:
    """Converts the bundle in `folder` for its NPU."""
    return f"{program()} convert {quoted(str(folder))}"


def doctor_command(folder: Path) -> str:
    """Checks the bundle in `folder`."""
    return f"{program()} doctor --model-dir {quoted(str(folder))}"


def lacking(folder: Path, manifest: Manifest, model: str | None = None) -> Iterator[str]:
    """A line for each graph that the bundle lacks for what it is for, with the command that adds
    it; `model` is its checkpoint, where known."""
    for name in _ANSWERING.get(manifest.target, ()):
        if name not in manifest.graphs:
            what = f"this bundle answers nothing until its {name} graph is exported, too"
            yield f"{what}: {adding(manifest, name, folder, model)}"
    if "vision" not in manifest.graphs and manifest.model.image_token_id is not None:
        what = "this bundle reads no pictures until its vision graph is exported, too"
        yield f"{what}: {adding(manifest, 'vision', folder, model)}"


def next_step(folder: Path, manifest: Manifest) -> str:
    """One line for the user: what the bundle in `folder` is ready for, and the command; empty
    where it lacks what answers."""
    if left_to_convert(manifest):
        return f"convert it on the NPU's host: {convert_command(folder)}"
    if set(_ANSWERING.get(manifest.target, ())) - manifest.graphs.keys():
        return ""
    return f"chat with it: {chat_command(folder)}"


def _is_default(folder: Path) -> bool:
    """Whether a chat opens `folder` without being told to."""
    try:
        return folder == Path(DEFAULT_OUT) and not load_settings().model_dir
    except Q35Error:
        return False


def as_typed_here(folder: Path) -> Path:
    """`folder`, an absolute path, as one would type it in the folder where this runs."""
    try:
        return folder.relative_to(Path.cwd().resolve())
    except ValueError:
        return folder
