"""What people choose among, and what they type where a number or a path is meant.

A leaf that imports nothing heavy: the command line and the first paint wait for it.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

from q35chat.errors import PictureError
from q35chat.text import safe_line

Speculate = Literal["off", "lookup", "mtp", "auto"]
"""Where guesses of the next tokens come from."""

KeyStyle = Literal["usual", "readline", "vi"]
"""Whose keys edit a message."""

GraphicsPreference = Literal["auto", "kitty", "sixel", "blocks", "none"]
"""How pictures are drawn; `auto` is the best that the terminal is known to do."""

MIN_CAPACITY = 17
"""KV slots of a bundle: a question of one word takes up to 16, most for the template's tokens."""

MOST: Final = 1_000_000
"""No count that somebody types here is larger."""


SAMPLING_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "temperature": (0, 5),
    "top_k": (0, MOST),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "presence_penalty": (-2, 2),
    "repetition_penalty": (0.5, 2),
    "seed": (0, 2**63 - 1),
}
"""From the least to the most of what can be typed for each option, wherever it is."""

WHOLE_OPTIONS: Final = frozenset({"top_k", "seed"})
"""Those of them that are whole numbers."""


def typed_number(text: str, most: int = MOST) -> int | None:
    """The whole number from 0 to `most` that `text` says; None for any other text.

    Python refuses to read numbers of thousands of digits, which anybody can type.
    """
    if not text.isdecimal() or len(text) > len(str(MOST)):
        return None
    number = int(text)
    return number if number <= most else None


_ADDRESS: Final = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_DRIVE: Final = re.compile(r"/?([A-Za-z]):[\\/](.*)", re.DOTALL)
_SHARE: Final = re.compile(r"[\\/]{2}wsl(?:\$|\.localhost)[\\/][^\\/]+(.*)", re.DOTALL)
_NO_ESCAPE: Final = re.compile(r"\\\w")
"""A stroke of Windows: no shell and no terminal writes it before a letter."""
_DRIVES: Final = Path("/mnt")
"""Where WSL has the drives of Windows."""


def typed_path(text: str) -> Path:
    """The path that `text` names: as it stands where something is there, else as terminals, shells,
    file managers and Windows write one.

    Understands quotes, escaped spaces, `file://` addresses, `~`, and a name that differs from that
    of the file in kinds of spaces or in how its accents are composed. A null byte, which no name
    has, is shown.
    """
    readings = [_at_home(reading) for reading in _readings(text.replace("\0", "\u2400"))]
    return next((found for found in map(_found, readings) if found), readings[-1])


def typed_picture(text: str) -> Path:
    """As `typed_path`, of a picture. Raises PictureError for an address of the web."""
    address = text.strip().strip("'\"")
    if _ADDRESS.match(address):
        shown = safe_line(address, limit=len(address))
        raise PictureError(
            f"{shown} is not fetched, nothing is; save the picture and give its path"
        )
    return typed_path(text)


def _readings(text: str) -> Iterator[str]:
    """What a text may mean, the likeliest last."""
    yield text
    word = text.strip()
    yield word
    if not _NO_ESCAPE.search(word):
        with suppress(ValueError):
            words = shlex.split(word)
            word = words[0] if len(words) == 1 else word
    word = word.strip("'\"") if word[:1] in ("'", '"') else word
    if word.lower().startswith("file:"):
        word = unquote(urlsplit(word).path)
    if share := _SHARE.match(word):
        word = share[1].replace("\\", "/")
    elif (drive := _DRIVE.match(word)) and (_DRIVES / drive[1].lower()).is_dir():
        word = str(_DRIVES / drive[1].lower() / drive[2].replace("\\", "/"))
    yield word


def _at_home(text: str) -> Path:
    """`~` is a home folder where there is such a user."""
    path = Path(text)
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def _found(path: Path) -> Path | None:
    """The path, or the only one there that is spelled alike; None where nothing is there."""
    try:
        if path.exists():
            return path
        if path.name.isascii() and " " not in str(path):
            return None
        folder = _found(path.parent) if path.parent != path else None
        names = [entry.name for entry in folder.iterdir()] if folder is not None else []
    except (OSError, ValueError):
        return None
    alike = [name for name in names if _spelling(name) == _spelling(path.name)]
    return folder / alike[0] if folder is not None and len(alike) == 1 else None


def _spelling(name: str) -> str:
    """A name with plain spaces and composed letters: macOS writes a narrow no-break space into the
    names of screenshots, and takes letters apart from their accents."""
    return unicodedata.normalize("NFKC", name)
