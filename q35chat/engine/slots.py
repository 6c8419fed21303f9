"""The slots of a sequence: which are lit, and what each of them holds.

Knows no buffers. A row that no mask lights may still hold what a snapshot goes back to.
"""

from __future__ import annotations

import numpy as np

from q35chat.engine.capacity import PrefixMask
from q35chat.engine.session import Array

_EMPTY = np.iinfo(np.int64).min


class Slots:
    """`capacity` slots, lit from the start on; `mask` is what a graph reads of them."""

    def __init__(self, capacity: int, dtype: np.dtype[np.generic]) -> None:
        self.mask = PrefixMask(capacity, dtype)
        self._keys: Array = np.full(capacity, _EMPTY, np.int64)
        self._filled = 0

    @property
    def used(self) -> int:
        """Slots that are lit."""
        return self.mask.count

    @property
    def keys(self) -> Array:
        """What fills the lit slots, int64."""
        return self._keys[: self.used]

    def light(self, tokens: int) -> None:
        """Light the next `tokens` slots. Raises NoSlotError when they are not there."""
        self.mask.light(tokens)

    def rewind(self, count: int) -> None:
        """Go back, or forward again, to `count` lit slots; their rows stay."""
        self.mask.rewind(count)

    def name(self, tokens: int, keys: Array | int) -> None:
        """Say what the last `tokens` lit slots hold. Rows beyond them belong to another past."""
        end = self.used
        self._keys[end - tokens : end] = keys
        self.forget_beyond(end)

    def rename(self, keys: Array) -> None:
        """Say what the first slots hold, whether they are lit or not."""
        self._keys[: len(keys)] = keys

    def forget_beyond(self, end: int) -> None:
        """The rows from slot `end` on hold nothing that can be gone back to."""
        if self._filled > end:
            self._keys[end : self._filled] = _EMPTY
        self._filled = end

    def hold(self, keys: Array) -> bool:
        """Whether the first slots still hold `keys`."""
        return np.array_equal(self._keys[: len(keys)], keys)
