"""Which way pictures are drawn: terminal graphics only where every fact speaks for them.

Kitty's placeholders are garbage in a terminal that does not know them, so variables of the
environment decide only whether the terminal is asked; what it says of itself decides. Anything
uncertain means half blocks.
"""

from __future__ import annotations

import fcntl
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from q35chat.tui.images.gallery import Gallery
from q35chat.tui.images.terminal_query import Answers
from q35chat.user_input import GraphicsPreference

GraphicsProtocol = Literal["kitty", "sixel", "blocks", "none"]

_USUAL_CELL: Final = (10, 20)
_KITTY: Final = re.compile(r"kitty\((\d{1,4})\.(\d{1,4})")
_FIRST_WITH_PLACEHOLDERS: Final = (0, 28)
_SIXEL_NAMES: Final = ("foot(", "WezTerm ")
_TMUX_TIMEOUT_S: Final = 1.0
_TMUX_FACTS: Final = "#{client_termtype}\t#{client_termfeatures}"


@dataclass(frozen=True, slots=True)
class Terminal:
    """What is known of the terminal; `cell` is a cell's width and height in pixels."""

    best: GraphicsProtocol = "blocks"
    in_tmux: bool = False
    passes: bool = True
    cell: tuple[int, int] | None = None


@dataclass(slots=True)
class PictureDisplay:
    """How pictures are drawn now; `preference` may change while the application runs."""

    preference: GraphicsPreference = "auto"
    terminal: Terminal = Terminal()
    gallery: Gallery = field(default_factory=Gallery)

    @property
    def protocol(self) -> GraphicsProtocol:
        """The preference, as far as it cannot end in garbage."""
        match self.preference:
            case "auto":
                return self.terminal.best
            case "kitty":
                return "kitty" if self.terminal.passes else "blocks"
            case "sixel":
                return "blocks" if self.terminal.in_tmux else "sixel"
            case _:
                return self.preference

    @property
    def cell(self) -> tuple[int, int]:
        """Width and height of a cell in pixels; a usual one where the terminal does not say."""
        return cell_pixels() or self.terminal.cell or _USUAL_CELL


Ask = Callable[[], Answers]
RunTmux = Callable[[list[str]], str]


def inspect_terminal(
    environment: Mapping[str, str], ask: Ask, run_tmux: RunTmux | None = None
) -> Terminal:
    """Find out what the terminal can draw. Asks it only where the environment gives hope."""
    if "TMUX" in environment:
        return _through_tmux(run_tmux or tmux_says)
    if not _hopeful(environment):
        return Terminal(cell=cell_pixels())
    answers = ask()
    cell = cell_pixels() or answers.cell
    return Terminal(_best(answers, environment, cell), cell=cell)


def _hopeful(environment: Mapping[str, str]) -> bool:
    """Whether the terminal may be one of those known to draw pictures well."""
    nested = environment.keys() & {"STY", "ZELLIJ", "INSIDE_EMACS", "NO_COLOR"}
    if nested or environment.get("TERM", "dumb").startswith(("dumb", "screen", "tmux")):
        return False
    name = f"{environment.get('TERM', '')} {environment.get('TERM_PROGRAM', '')}".lower()
    if any(known in name for known in ("kitty", "ghostty", "wezterm", "foot")):
        return True
    return "KITTY_WINDOW_ID" in environment or "WT_SESSION" in environment


def _best(
    answers: Answers, environment: Mapping[str, str], cell: tuple[int, int] | None
) -> GraphicsProtocol:
    if knows_placeholders(answers.name):
        return "kitty"
    far = "SSH_CONNECTION" in environment or "SSH_TTY" in environment
    known = answers.name.startswith(_SIXEL_NAMES) or "WT_SESSION" in environment
    return "sixel" if answers.sixel and known and cell is not None and not far else "blocks"


def knows_placeholders(name: str) -> bool:
    """Whether a terminal of this name and version draws Unicode placeholders."""
    version = _KITTY.match(name)
    if version is not None:
        return (int(version[1]), int(version[2])) >= _FIRST_WITH_PLACEHOLDERS
    return name.startswith("ghostty")


def _through_tmux(run: RunTmux) -> Terminal:
    """Inside tmux every attached terminal counts, and tmux must hand sequences on."""
    passes = run(["show-options", "-A", "-p", "-v", "allow-passthrough"]).strip() in {"on", "all"}
    session = run(["display-message", "-p", "#{session_id}"]).strip()
    clients = run(["list-clients", "-t", session, "-F", _TMUX_FACTS]).splitlines() if passes else []
    facts = [client.partition("\t") for client in clients]
    every = all(knows_placeholders(name) and "RGB" in more.split(",") for name, _, more in facts)
    return Terminal("kitty" if facts and every else "blocks", in_tmux=True, passes=passes)


def tmux_says(arguments: list[str]) -> str:
    """What tmux answers; empty when it does not."""
    try:
        done = subprocess.run(
            ["tmux", *arguments],
            capture_output=True,
            text=True,
            timeout=_TMUX_TIMEOUT_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def cell_pixels() -> tuple[int, int] | None:
    """Width and height of a cell as the kernel knows them; None where it does not."""
    try:
        packed = fcntl.ioctl(sys.__stdin__.fileno(), termios.TIOCGWINSZ, bytes(8))  # type: ignore[union-attr]
    except (OSError, ValueError, AttributeError):
        return None
    rows, columns, width, height = struct.unpack("4H", packed)
    if not (rows and columns and width >= columns and height >= rows):
        return None
    return width // columns, height // rows
