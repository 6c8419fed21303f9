"""What outlives the process of a model's state: brought back for a prompt, written for a chat.

Composes the decoder, its snapshots and a pool of states; decides on slot keys alone. Must not know
texts or turns. Trouble with a file is logged: then more is read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import numpy as np

from q35chat.chat.prompt.reuse import PrefixCache
from q35chat.engine.decoder import Decoder
from q35chat.engine.session import Array
from q35chat.engine.states import Snapshot
from q35chat.states.listing import ANYBODY, StateName
from q35chat.states.pool import name_of


class Pool(Protocol):
    """Where states are kept: on the disk for later processes, or in memory for other clients."""

    def of(self, owner: str, model: str) -> list[StateName]:
        """An owner's states of a model, the shortest first."""

    def longest(self, model: str, keys: Array, beyond: int) -> StateName | None:
        """Find the state of the longest beginning of `keys` [N] int64, of more than `beyond` of
        them and not of all, whoever owns it."""

    def has(self, name: StateName) -> bool:
        """Whether it is there; then it counts as used now."""

    def keys(self, name: StateName) -> Array:
        """What a state was read of, [N] int64; nothing where that cannot be told."""

    def read(self, name: StateName) -> Mapping[str, Array]:
        """The arrays of a state, which counts as used now. Raises OSError, ValueError."""

    def write(
        self,
        name: StateName,
        arrays: Iterable[tuple[str, Array]],
        should_stop: Callable[[], bool],
    ) -> bool:
        """Keep a state; whether it is there then. Raises OSError."""

    def remove(self, *names: StateName) -> None:
        """Remove states."""


_log = logging.getLogger(__name__)


class KeptStates:
    """States of one `decoder` in a pool; `model` is the digest of all that made them."""

    def __init__(self, pool: Pool, model: str, decoder: Decoder, cache: PrefixCache) -> None:
        self._pool = pool
        self._model = model[:16]
        self._decoder = decoder
        self._cache = cache

    def recall(self, keys: Array) -> None:
        """Put the decoder where most of `keys` [N] int64 is read, if the pool has more of it than
        the decoder and its snapshots."""
        while found := self._pool.longest(self._model, keys, self._cache.reusable(keys)):
            try:
                self._decoder.load(self._pool.read(found))
            except (OSError, ValueError) as error:
                _log.info("the state %s could not be used: %s", found, error)
                self._pool.remove(found)
                if self._pool.has(found):
                    return
            else:
                self._cache.keep()

    def keep(
        self, keys: Array, chat: str, shared: Iterable[int], should_stop: Callable[[], bool]
    ) -> None:
        """Write the longest point of `keys` [N] int64, a chat's prompt, and where another branch of
        the chat parts from it; for all chats what ends after `shared` tokens. Between runs only.

        Earlier points of the chat are dropped where this one goes on from them.
        """
        point = self._cache.point(keys)
        if point is None or self._pool.longest(self._model, keys, point.count):
            return
        if not self._write(chat, point, should_stop):
            return
        earlier, partings = list[StateName](), set[int]()
        for name in self._pool.of(chat, self._model):
            common = _common(self._pool.keys(name), point.keys)
            if common < name.count:
                partings.add(common)
            elif common < point.count:
                earlier.append(name)
        needed = {max((name.count for name in earlier if name.count <= at), default=0)
                  for at in partings}  # fmt: skip
        for at in partings:
            parting = self._cache.point(keys[: at + 1])
            if parting is not None and self._write(chat, parting, should_stop):
                needed.add(parting.count)
        self._pool.remove(*(name for name in earlier if name.count not in needed))
        for end in shared:
            beginning = self._cache.point(keys[: end + 1])
            if beginning is not None and beginning.count == end:
                self._write(ANYBODY, beginning, should_stop)

    def _write(self, owner: str, point: Snapshot, should_stop: Callable[[], bool]) -> bool:
        name = name_of(owner, self._model, point.keys)
        try:
            return self._pool.write(name, self._decoder.dump(point), should_stop)
        except OSError as error:
            _log.info("a state could not be kept: %s", error)
            return False


def _common(first: Array, second: Array) -> int:
    """How many keys both begin with."""
    length = min(len(first), len(second))
    different = np.flatnonzero(first[:length] != second[:length])
    return int(different[0]) if len(different) else length
