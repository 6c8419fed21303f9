"""The environment that a child of a test gets."""

from __future__ import annotations

import os

SIZE = ("COLUMNS", "LINES")
"""The readline library leaves these, 80 by 24, to all children of a process that loads it, pytest's
workers too, and programs believe them before the terminal."""


def environment_without(*names: str) -> dict[str, str]:
    """Ours, but for `names`."""
    return {name: value for name, value in os.environ.items() if name not in names}
