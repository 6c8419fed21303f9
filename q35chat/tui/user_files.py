"""Files of the user's: written as a whole, and changed by one window at a time.

Knows nothing of what stands in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from q35chat import files
from q35chat.files import locked

_PRIVATE: Final = 0o600


@contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Nobody else who asks for the same file goes on meanwhile, in no process and no thread: what
    is read here is what stands there until it is replaced. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(path.with_name(f".{path.name}.lock")):
        yield


def replace_file(path: Path, text: str) -> None:
    """Write a file that only the user reads, as a whole, or leave it as it is; its folder is made
    where it is missing. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    files.replace_file(path, text, mode=_PRIVATE)
