"""What people type where a number or a path is meant, read without surprises. A leaf."""

from __future__ import annotations

from pathlib import Path
from typing import Final

MOST: Final = 1_000_000
"""No count that somebody types here is larger."""


def typed_number(text: str, most: int = MOST) -> int | None:
    """The whole number from 0 to `most` that `text` says; None for any other text.

    Python refuses to read numbers of thousands of digits, which anybody can type.
    """
    if not text.isdecimal() or len(text) > len(str(MOST)):
        return None
    number = int(text)
    return number if number <= most else None


def typed_path(text: str) -> Path:
    """The path that `text` names. `~` is a home folder where there is such a user."""
    path = Path(text)
    try:
        return path.expanduser()
    except RuntimeError:
        return path
