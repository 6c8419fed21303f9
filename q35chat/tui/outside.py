"""The message in an editor of the user's own, `$VISUAL` or `$EDITOR`, which has the terminal
meanwhile. Knows no widget.
"""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

_USUAL: Final = ("vi", "nano")
_TERMINAL: Final = "/dev/tty"


@dataclass(frozen=True, slots=True)
class Written:
    """What came back: the text, or in a line why it did not."""

    text: str
    problem: str = ""


def editor_command(environment: Mapping[str, str]) -> list[str]:
    """The user's editor with its options, else one that is usually there; empty for none."""
    for name in ("VISUAL", "EDITOR"):
        with suppress(ValueError):  # a quotation that does not end
            if command := shlex.split(environment.get(name, "")):
                return command
    return next(([name] for name in _USUAL if shutil.which(name)), [])


def write_outside(text: str, environment: Mapping[str, str]) -> Written:
    """Let the user's editor change a text in a file that nobody else reads; returns when it has
    ended. Where it fails the text stays as it was, and a file that it has changed is kept."""
    command = editor_command(environment)
    if not command:
        return Written(text, "No editor is here; set EDITOR to the command of one")
    try:
        folder = Path(tempfile.mkdtemp(prefix="q35chat-"))
        file = folder / "message.md"
        file.write_text(text, "utf-8")
        file.chmod(0o600)
    except OSError as error:
        return Written(text, f"The message cannot be written for an editor: {error}")
    kept = False
    try:
        code = _run([*command, str(file)])
        changed = file.read_text("utf-8")
        if not code:
            return Written(changed if text.endswith("\n") else changed.removesuffix("\n"))
        kept = changed != text
        where = f"; what it wrote is in {file}" if kept else ""
        return Written(text, f"{command[0]} ended with {code}; the message is as it was{where}")
    except (OSError, ValueError) as error:
        return Written(text, f"{command[0]} did not work ({error}); the message is as it was")
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str]) -> int:
    """Run a command in the terminal; its exit code. Keys that send signals are for it alone."""
    before = {one: signal.signal(one, _ignore) for one in (signal.SIGINT, signal.SIGQUIT)}
    try:
        with open(_TERMINAL, "r+b", buffering=0) as terminal:  # noqa: PTH123
            return subprocess.run(
                command, stdin=terminal, stdout=terminal, stderr=terminal, check=False
            ).returncode
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """A handler of our own, unlike SIG_IGN, is none of the command's."""
