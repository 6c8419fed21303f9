"""What people choose among, and what they type where a number or a path is meant.

A leaf that imports nothing heavy: the command line and the first paint wait for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

Speculate = Literal["off", "lookup", "mtp", "auto"]
"""Where guesses of the next tokens come from."""

MIN_CAPACITY = 17
"""KV slots of a bundle: a question of one word takes up to 16, most for the template's tokens."""

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
