"""What a paste means: picture files, a fold, or plain text. Pure functions but for `is_file`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from q35chat.text import safe_text
from q35chat.user_input import typed_path

PICTURE_SUFFIXES: Final = frozenset({".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp"})
FOLD_CHARACTERS: Final = 2_000
FOLD_LINES: Final = 15
_LONGEST_PATH_PASTE: Final = 4_096
_LINE_END: Final = re.compile("\r\n|[\r\u2028\u2029]")
_FOLD: Final = re.compile(r"\[paste #([0-9]{1,9}) · [^\]\n]*\]")


def plain_text(pasted: str) -> str:
    """What is written when this is pasted: one kind of line end, no mark at the beginning that a
    file has for its encoding, and nothing that steers a terminal; all else as it is."""
    return safe_text(_LINE_END.sub("\n", pasted.removeprefix("\ufeff")))


def is_picture(path: Path) -> bool:
    """Whether the file name says it is a picture."""
    return path.suffix.lower() in PICTURE_SUFFIXES


def picture_paths(pasted: str) -> tuple[Path, ...]:
    """The picture files a paste names, if it names nothing else; else none.

    Understands what terminals paste on a drop: quotes, escaped spaces, `file://` addresses,
    `~`, several paths separated by spaces or lines.
    """
    text = pasted.strip()
    if not text or len(text) > _LONGEST_PATH_PASTE:
        return ()
    for reading in (_whole_lines(text), _shell_words(text)):
        paths = tuple(_as_path(word) for word in reading)
        if paths and all(_is_picture_file(path) for path in paths):
            return paths
    return ()


def is_existing_path(text: str) -> bool:
    """Whether a one-line text is the path of something that exists, however it starts."""
    line = text.strip()
    if not line or "\n" in line or len(line) > _LONGEST_PATH_PASTE:
        return False
    words = _shell_words(line)
    return any(_exists(_as_path(word)) for word in (line, *words[:1]))


def folds(pasted: str) -> bool:
    """Whether a paste is long enough to be shown as one token."""
    return len(pasted) > FOLD_CHARACTERS or pasted.count("\n") >= FOLD_LINES


def fold_label(number: int, pasted: str) -> str:
    """The token that stands for paste `number` in the composer."""
    lines = pasted.count("\n") + 1
    size = f"{lines:,} lines" if lines > 1 else f"{len(pasted):,} characters"
    return f"[paste #{number} · {size}]"


def unfold(text: str, kept: dict[int, str]) -> str:
    """The text with every known fold replaced by what was pasted."""

    def original(match: re.Match[str]) -> str:
        number = int(match[1])
        pasted = kept.get(number)
        return pasted if pasted is not None and match[0] == fold_label(number, pasted) else match[0]

    return _FOLD.sub(original, text) if kept else text


def fold_before(line: str, column: int) -> int:
    """Characters of the fold that ends at `column`, so that it is deleted as one; 0 if none."""
    for match in _FOLD.finditer(line):
        if match.end() == column:
            return match.end() - match.start()
    return 0


def _whole_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _shell_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _as_path(word: str) -> Path:
    word = word.strip().strip("'\"") if word[:1] in "'\"" else word.strip()
    if word.startswith("file://"):
        word = unquote(urlsplit(word).path)
    return typed_path(word)


def _is_picture_file(path: Path) -> bool:
    try:
        return is_picture(path) and path.is_file()
    except (OSError, ValueError):
        return False


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
