"""Which states are there, whose they are, and which go: told by the names of their files alone.

A name says whose a state is, of which model, and of which tokens. Loads no large library: commands
that list chats ask here.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ANYBODY: Final = "+"
"""Owns what many conversations begin with."""

_OWNER: Final = re.compile("[A-Za-z0-9_-]{1,64}")
_NAME: Final = re.compile(
    r"(\+|[A-Za-z0-9_-]{1,64})\.([0-9a-f]{16})\.([0-9]{1,9})\.([0-9a-f]{32})\.state"
)


@dataclass(frozen=True, slots=True)
class StateName:
    """Whose state it is, of which model, after how many tokens, and the digest of their keys."""

    owner: str
    model: str
    count: int
    digest: str

    @classmethod
    def read(cls, text: str) -> StateName | None:
        """The name of a file; None where it is none of a state."""
        match = _NAME.fullmatch(text)
        return cls(match[1], match[2], int(match[3]), match[4]) if match else None

    def __str__(self) -> str:
        """The name of its file."""
        return f"{self.owner}.{self.model}.{self.count}.{self.digest}.state"


@dataclass(frozen=True, slots=True)
class StoredState:
    """A state that is there: its size in bytes, and when it was used last, in seconds since the
    epoch."""

    name: StateName
    size: int
    used: float


def owner_name(owner: str) -> str:
    """What the names of an owner's states begin with, whatever is in its own."""
    plain = owner == ANYBODY or _OWNER.fullmatch(owner)
    return owner if plain else hashlib.sha256(owner.encode("utf-8", "replace")).hexdigest()


def stored_states(folder: Path) -> list[StoredState]:
    """All states in `folder`, the one used last first; none where it cannot be read."""
    found = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            name = StateName.read(entry.name)
            with suppress(OSError):
                if name is not None and entry.is_file(follow_symlinks=False):
                    info = entry.stat(follow_symlinks=False)
                    found.append(StoredState(name, info.st_size, info.st_mtime))
    return sorted(found, key=lambda state: state.used, reverse=True)


def drop_states(folder: Path, owner: str | None = None) -> list[StoredState]:
    """Remove all states in `folder`, or all of an owner's; those that are gone."""
    named = None if owner is None else owner_name(owner)
    wanted = [state for state in stored_states(folder) if named in (None, state.name.owner)]
    return [state for state in wanted if remove_state(folder, state.name)]


def remove_state(folder: Path, name: StateName) -> bool:
    """Remove one; whether that went."""
    with suppress(OSError):
        (folder / str(name)).unlink()
        return True
    return False
