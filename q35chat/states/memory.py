"""The pool of states in memory, for the clients of a server that take turns: as on the disk, but
gone with the process.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from q35chat.states.file import Array
from q35chat.states.listing import StateName, owner_name
from q35chat.states.pool import KEYS, longest_of


class MemoryPool:
    """States of at most `limit` bytes together, which may be changed: those used longest ago go
    first. For one thread."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._states: OrderedDict[StateName, Mapping[str, Array]] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """Memory that is held, in bytes."""
        return sum(map(_bytes, self._states.values()))

    def of(self, owner: str, model: str) -> list[StateName]:
        """An owner's states of a model, the shortest first."""
        wanted = owner_name(owner), model
        mine = [name for name in self._states if (name.owner, name.model) == wanted]
        return sorted(mine, key=lambda name: name.count)

    def longest(self, model: str, keys: Array, beyond: int) -> StateName | None:
        """Find the state of the longest beginning of `keys` [N] int64, of more than `beyond` of
        them and not of all, whoever owns it."""
        return longest_of((name for name in self._states if name.model == model), keys, beyond)

    def has(self, name: StateName) -> bool:
        """Whether it is there; then it counts as used now."""
        if name in self._states:
            self._states.move_to_end(name)
            return True
        return False

    def keys(self, name: StateName) -> Array:
        """What a state was read of, [N] int64; nothing where it is not there."""
        return self._states.get(name, {}).get(KEYS, np.zeros(0, np.int64))

    def read(self, name: StateName) -> Mapping[str, Array]:
        """The arrays of a state, which counts as used now. Raises ValueError where it is gone."""
        if not self.has(name):
            raise ValueError("it is not there any more")
        return self._states[name]

    def write(
        self,
        name: StateName,
        arrays: Iterable[tuple[str, Array]],
        should_stop: Callable[[], bool],
    ) -> bool:
        """Keep copies of a state's arrays; whether it is there then. It is not where it was stopped
        or is larger than the limit."""
        if self.has(name):
            return True
        copies, size = dict[str, Array](), 0
        for what, array in arrays:
            size += array.nbytes
            if should_stop() or size > self.limit:
                return False
            copies[what] = array.copy()
        self._states[name] = copies
        while self.nbytes > self.limit:
            self._states.popitem(last=False)
        return True

    def remove(self, *names: StateName) -> None:
        """Remove states."""
        for name in names:
            self._states.pop(name, None)


def _bytes(arrays: Mapping[str, Array]) -> int:
    return sum(array.nbytes for array in arrays.values())
