"""Copying from a terminal program, and saying honestly whether it can have worked.

Inside tmux the text goes to tmux, which can pass it on; on a local desktop a clipboard tool
takes it; everywhere the terminal is asked with OSC 52, whose success nobody can see. The
functions here decide and word; `copy` runs tools and belongs in a worker thread.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from q35chat.tui.text import through_tmux

OSC52_LIMIT: Final = 74_000
_TIMEOUT_S: Final = 2.0

_TOOLS: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("wl-copy", "WAYLAND_DISPLAY", ()),
    ("xclip", "DISPLAY", ("-selection", "clipboard")),
    ("xsel", "DISPLAY", ("--clipboard", "--input")),
    ("pbcopy", "", ()),
    ("clip.exe", "", ()),
)


@dataclass(frozen=True, slots=True)
class Copied:
    """What came of a copy: `sequence` still has to be written to the terminal."""

    message: str
    certain: bool
    sequence: str = ""


def osc52(text: str, environment: Mapping[str, str]) -> str:
    """The sequence that asks the terminal to take `text`, passed through tmux or screen."""
    payload = base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")
    sequence = f"\x1b]52;c;{payload}\x07"
    if "TMUX" in environment:
        return through_tmux(sequence)
    if environment.get("TERM", "").startswith("screen"):
        return f"\x1bP{sequence}\x1b\\"
    return sequence


def tool_commands(
    environment: Mapping[str, str], which: Callable[[str], str | None] = shutil.which
) -> list[tuple[str, list[str]]]:
    """Clipboard tools worth trying here, best first, as (name, command) pairs."""
    commands: list[tuple[str, list[str]]] = []
    if "TMUX" in environment and which("tmux"):
        commands.append(("tmux", ["tmux", "load-buffer", "-w", "-"]))
    if "SSH_CONNECTION" in environment or "SSH_TTY" in environment:
        return commands
    commands += [
        (tool, [tool, *arguments])
        for tool, variable, arguments in _TOOLS
        if (not variable or variable in environment) and which(tool)
    ]
    return commands


def run_tool(command: list[str], text: str) -> bool:
    """Give the text to a tool; whether it took it."""
    try:
        done = subprocess.run(
            command,
            input=text.encode("utf-8", "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def copy(
    text: str,
    what: str,
    environment: Mapping[str, str],
    run: Callable[[list[str], str], bool] = run_tool,
    which: Callable[[str], str | None] = shutil.which,
) -> Copied:
    """Copy `text` by every way that fits; `what` names it in the message."""
    size = f"{what} ({len(text):,} characters)"
    too_long = len(text.encode("utf-8", "replace")) > OSC52_LIMIT
    sequence = "" if too_long else osc52(text, environment)
    took = [name for name, command in tool_commands(environment, which) if run(command, text)]
    desktop = [name for name in took if name != "tmux"]
    if desktop:
        return Copied(f"Copied {size} with {desktop[0]}", True)
    if took:
        return Copied(
            f"Copied {size} to the tmux buffer (prefix ] pastes it) and asked the terminal, too",
            True,
            sequence,
        )
    if too_long:
        return Copied(f"{size} is too long for the terminal's clipboard; /export writes it", False)
    return Copied(
        f"Asked the terminal to copy {size}; if pasting gives nothing, it does not allow "
        "OSC 52: select with Shift+mouse, or /export",
        False,
        sequence,
    )
