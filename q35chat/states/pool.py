"""The pool of states: the longest beginning of a prompt is found in it without opening a file, in
any process, and those used longest ago go when there is no room for all.

For several conversations, or clients, alike.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from q35chat import files
from q35chat.states.file import PART, Array, read_state, write_state
from q35chat.states.listing import StateName, owner_name, remove_state, stored_states

SPARE: Final = 1 << 30
"""Bytes that stay free on the disk."""
KEYS: Final = "keys"
"""The array of what was read, [N] int64: its first N tell it from any other."""


class StatePool:
    """States in `folder`, which is made when it is needed, of at most `limit` bytes together: those
    used longest ago go first. At least `SPARE` bytes of the disk stay free."""

    def __init__(self, folder: Path, limit: int = 0) -> None:
        self._folder = folder
        self._limit = limit

    def of(self, owner: str, model: str) -> list[StateName]:
        """An owner's states of a model, the shortest first."""
        names = [state.name for state in stored_states(self._folder)]
        mine = [name for name in names if (name.owner, name.model) == (owner_name(owner), model)]
        return sorted(mine, key=lambda name: name.count)

    def longest(self, model: str, keys: Array, beyond: int) -> StateName | None:
        """Find the state of the longest beginning of `keys` [N] int64, of more than `beyond` of
        them and not of all, whoever owns it."""
        names = {state.name for state in stored_states(self._folder) if state.name.model == model}
        return longest_of(names, keys, beyond)

    def has(self, name: StateName) -> bool:
        """Whether it is there; then it counts as used now."""
        with suppress(OSError):
            os.utime(self._folder / str(name))
            return True
        return False

    def keys(self, name: StateName) -> Array:
        """What a state was read of, [N] int64; nothing where that cannot be told."""
        with suppress(OSError, KeyError, ValueError):
            return read_state(self._folder / str(name), checked=False)[KEYS].copy()
        return np.zeros(0, np.int64)

    def read(self, name: StateName) -> Mapping[str, Array]:
        """The arrays of a state, which counts as used now; one that is damaged, or not what its
        name says, is removed. Raises OSError, ValueError."""
        try:
            arrays = read_state(self._folder / str(name))
            if KEYS not in arrays or name_of(name.owner, name.model, arrays[KEYS]) != name:
                raise ValueError("its name is that of another state")
        except ValueError:
            self.remove(name)
            raise
        self.has(name)
        return arrays

    def write(
        self,
        name: StateName,
        arrays: Iterable[tuple[str, Array]],
        should_stop: Callable[[], bool],
    ) -> bool:
        """Keep a state; whether it is there then. It is not where it was stopped, or where limit
        or disk have no room. Raises OSError."""

        def may_go_on(written: int) -> bool:
            return not should_stop() and written <= self._limit and self._free() > 0

        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._remove_left_over()
        self._trim(self._free())
        if not self.has(name) and not write_state(self._folder / str(name), arrays, may_go_on):
            return False
        self._trim(self._free())
        return True

    def remove(self, *names: StateName) -> None:
        """Remove states."""
        for name in names:
            remove_state(self._folder, name)

    def _free(self) -> int:
        """Bytes that may still be used of the disk."""
        return shutil.disk_usage(self._folder).free - SPARE

    def _trim(self, free: int) -> None:
        """Remove what has no room."""
        states = stored_states(self._folder)
        room = min(self._limit, sum(state.size for state in states) + free)
        for state in states:
            room -= state.size
            if room < 0:
                self.remove(state.name)

    def _remove_left_over(self) -> None:
        """Remove what dead processes did not finish, and what no process of ours has named."""
        for foreign in self._folder.glob("*.state"):
            if StateName.read(foreign.name) is None:
                with suppress(OSError):
                    foreign.unlink()
        for part in self._folder.glob(f"*{PART}"):
            with suppress(OSError), part.open("rb") as file:
                files.lock(file.fileno(), wait=False)
                part.unlink()


def longest_of(names: Iterable[StateName], keys: Array, beyond: int) -> StateName | None:
    """That of `names` which is the longest beginning of `keys` [N] int64, of more than `beyond` of
    them and not of all."""
    fitting = [name for name in names if beyond < name.count < len(keys)]
    for name in sorted(fitting, key=lambda name: name.count, reverse=True):
        if name.digest == _of_keys(keys[: name.count]):
            return name
    return None


def name_of(owner: str, model: str, keys: Array) -> StateName:
    """The name of an owner's state of a model after `keys` [N] int64."""
    return StateName(owner_name(owner), model[:16], len(keys), _of_keys(keys))


def _of_keys(keys: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(keys, np.int64).tobytes()).hexdigest()[:32]
