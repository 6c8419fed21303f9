"""A cache of what is dear to compute, within a limit on its size.

Knows nothing of what it holds. Safe in any thread; two threads may compute the same twice.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SizedCache(Generic[K, V]):
    """Values of at most `limit` together, as `size` counts a key with its value; what was asked
    for longest ago is forgotten first."""

    def __init__(self, size: Callable[[K, V], int], limit: int) -> None:
        self._size = size
        self._limit = limit
        self._held = 0
        self._known: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, key: K) -> bool:
        return key in self._known

    def get(self, key: K) -> V | None:
        """The value of `key`, which callers must not change; None where it is not held."""
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def of(self, key: K, compute: Callable[[], V]) -> V:
        """The value of `key`, computed if it is not held; callers must not change it."""
        value = self.get(key)
        if value is None:
            value = compute()
            self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Hold `value` where the limit allows it."""
        with self._lock:
            if key in self._known:
                return
            self._known[key] = value
            self._held += self._size(key, value)
            while self._held > self._limit:
                self._held -= self._size(*self._known.popitem(last=False))

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._known.clear()
            self._held = 0
