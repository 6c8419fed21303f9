"""Reading the clipboard: with the desktop's tools, else from the terminal where it answers.

What it holds is text or a picture, which becomes a file. `read` runs tools and belongs in a worker
thread. Copying is in `clipboard`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import platformdirs

ASK: Final = "\x1b]52;c;?\x07"
"""Asks the terminal for its clipboard (OSC 52); many do not answer, or ask the user first."""
_ANSWER: Final = "\x1b]52;"
_ENDS: Final = ("\x07", "\x1b\\")
_LONGEST: Final = 64 << 20
_TIMEOUT_S: Final = 3.0
_MOST_KEPT: Final = 20
_PICTURE: Final = "image/png"


@dataclass(frozen=True, slots=True)
class _Tool:
    """A program that reads the clipboard where `variable` is set: its arguments for the text, for
    the kinds there are, and for a picture."""

    name: str
    variable: str
    text: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    picture: tuple[str, ...] = ()


_XCLIP: Final = ("-selection", "clipboard", "-o")
_TOOLS: Final = (
    _Tool("wl-paste", "WAYLAND_DISPLAY", ("-n",), ("-l",), ("-t", _PICTURE)),
    _Tool("xclip", "DISPLAY", _XCLIP, (*_XCLIP, "-t", "TARGETS"), (*_XCLIP, "-t", _PICTURE)),
    _Tool("xsel", "DISPLAY", ("--clipboard", "--output")),
    _Tool("pbpaste", "", ()),
    _Tool("powershell.exe", "", ("-noprofile", "-command", "Get-Clipboard")),
)


@dataclass(frozen=True, slots=True)
class Held:
    """What the clipboard holds: a text, or the bytes of a picture."""

    text: str = ""
    picture: bytes = b""


def run_tool(command: list[str]) -> bytes | None:
    """What a tool prints; None where it fails."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def read(
    environment: Mapping[str, str],
    run: Callable[[list[str]], bytes | None] = run_tool,
    which: Callable[[str], str | None] = shutil.which,
) -> Held | None:
    """What the desktop's clipboard holds; None where no tool can tell. Over SSH the desktop is
    another machine's."""
    if "SSH_CONNECTION" in environment or "SSH_TTY" in environment:
        return None
    for tool in _TOOLS:
        if (tool.variable and tool.variable not in environment) or not which(tool.name):
            continue
        kinds = (run([tool.name, *tool.kinds]) or b"") if tool.kinds else b""
        if _PICTURE.encode() in kinds and (picture := run([tool.name, *tool.picture])):
            return Held(picture=picture)
        text = run([tool.name, *tool.text])
        if text is not None:
            return Held(text.decode("utf-8", "replace"))
    return None


class TerminalAnswers:
    """Takes the terminal's answer out of what comes from it, once it was asked. Keys go on."""

    def __init__(self) -> None:
        self._held = ""
        self.asked = False

    def take(self, text: str) -> tuple[str, str | None]:
        """What is no answer, and the text of the clipboard once the answer is whole. An empty text
        says that nothing came for a while: what looked like the beginning of one was a key."""
        if not self.asked:
            return text, None
        whole, self._held = self._held + text, ""
        at = whole.find(_ANSWER)
        if at < 0:
            kept = _beginning_at_end(whole) if text else 0
            self._held = whole[len(whole) - kept :]
            return whole[: len(whole) - kept], None
        found = [(whole.find(end, at), len(end)) for end in _ENDS if whole.find(end, at) >= 0]
        if not found:
            too_long = len(whole) - at > _LONGEST
            self._held, self.asked = ("", False) if too_long else (whole[at:], True)
            return whole[:at], None
        stop, length = min(found)
        self.asked = False
        return whole[:at] + whole[stop + length :], _decoded(whole[at + len(_ANSWER) : stop])


def _beginning_at_end(text: str) -> int:
    """How many characters at the end may be the beginning of an answer."""
    lengths = range(len(_ANSWER) - 1, 0, -1)
    return next((n for n in lengths if text.endswith(_ANSWER[:n])), 0)


def _decoded(answer: str) -> str:
    data = answer.partition(";")[2]
    with suppress(binascii.Error, ValueError):
        return base64.b64decode(data, validate=True).decode("utf-8", "replace")
    return ""


def keep_picture(data: bytes) -> Path:
    """The file of a picture from the clipboard, in the cache folder; of earlier ones the newest
    stay. Raises OSError."""
    folder = platformdirs.user_cache_path("q35chat") / "pasted"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"pasted-{hashlib.sha256(data).hexdigest()[:8]}.png"
    path.write_bytes(data)
    for old in sorted(folder.iterdir(), key=lambda it: it.stat().st_mtime)[:-_MOST_KEPT]:
        old.unlink(missing_ok=True)
    return path
