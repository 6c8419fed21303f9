"""A function whose latest results are remembered, within a limit on the size of their arguments.

Knows nothing of what it computes. Safe in any thread; two threads may compute the same twice.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

DEFAULT_LIMIT = 4 << 20


class SizedCache(Generic[K, V]):
    """`compute` with a memory for arguments of at most `limit` together, as `size` counts them;
    what was asked for longest ago is forgotten first."""

    def __init__(
        self, compute: Callable[[K], V], size: Callable[[K], int], limit: int = DEFAULT_LIMIT
    ) -> None:
        self._compute = compute
        self._size = size
        self._limit = limit
        self._held = 0
        self._known: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, argument: K) -> V:
        """The result for `argument`; callers must not change it."""
        with self._lock:
            if argument in self._known:
                self._known.move_to_end(argument)
                return self._known[argument]
        value = self._compute(argument)
        with self._lock:
            if argument not in self._known:
                self._known[argument] = value
                self._held += self._size(argument)
                while self._held > self._limit:
                    self._held -= self._size(self._known.popitem(last=False)[0])
        return value
