"""The slots of a sequence: the prefix mask over them, what each holds, and the refusals.

The sum of the mask is the position the graph writes to, so it is always a run of ones from the
start; checks run before anything is uploaded. Knows no buffers. A row beyond the mask may still
hold what a snapshot goes back to.
"""

from __future__ import annotations

import numpy as np

from q35chat.engine.session import Array
from q35chat.errors import CapacityError, Q35Error, Remedy

_EMPTY = np.iinfo(np.int64).min


class PromptTooLongError(CapacityError, ValueError):
    """More tokens than the KV cache has slots."""


class CapacityMismatchError(Q35Error, ValueError):
    """The prefill graph and the decode graph have caches of different sizes."""


class NoSlotError(CapacityError, ValueError):
    """A step with no slot left to write."""


class ImageRowsError(Q35Error, ValueError):
    """Picture tokens and picture embeddings differ in number."""


def check_capacities(prefill: int, decode: int) -> None:
    """Refuse two graphs of different capacity."""
    if prefill != decode:
        raise CapacityMismatchError(
            f"prefill graph has {prefill} slots, decode graph {decode}: export both together"
        )


def check_prompt(tokens: int, used: int, capacity: int) -> None:
    """Refuse a prompt of no token, or of more than are left of `capacity` beside `used` slots."""
    if tokens == 0:
        raise ValueError("there is no token to read")
    if used + tokens > capacity:
        raise PromptTooLongError(
            f"prompt needs {used + tokens} slots, capacity {capacity}:", Remedy.SHORTEN
        )


class PrefixMask:
    """A [1, capacity] mask of ones from the start; its sum is the next position."""

    def __init__(self, capacity: int, dtype: np.dtype[np.generic]) -> None:
        self.array: Array = np.zeros((1, capacity), dtype)
        self.capacity = capacity
        self.count = 0

    def advance(self, tokens: int) -> None:
        """Use the next `tokens` slots. Raises NoSlotError when they are not there."""
        end = self.count + tokens
        if end > self.capacity:
            raise NoSlotError(f"all {self.capacity} slots are used: start a new chat")
        self.array[0, self.count : end] = 1
        self.count = end

    def rewind(self, count: int) -> None:
        """Go back (or forward, after a restore) to `count` lit slots."""
        self.array[0, :count] = 1
        self.array[0, count:] = 0
        self.count = count


class Slots(PrefixMask):
    """The mask of a sequence's slots, which a graph reads, and what each of them holds.

    A graph that works `in_place` writes the rows of its slots whether its run ends well or not.
    """

    def __init__(
        self, capacity: int, dtype: np.dtype[np.generic], *, in_place: bool = False
    ) -> None:
        super().__init__(capacity, dtype)
        self._in_place = in_place
        self._keys: Array = np.full(capacity, _EMPTY, np.int64)
        self._filled = 0

    @property
    def keys(self) -> Array:
        """What fills the lit slots, [count] int64."""
        return self._keys[: self.count]

    def advance(self, tokens: int) -> None:
        """Use the next `tokens` slots. Raises NoSlotError when they are not there."""
        before = self.count
        super().advance(tokens)
        if self._in_place:
            self.forget_beyond(before)

    def name(self, tokens: int, keys: Array | int) -> None:
        """Say what the last `tokens` lit slots hold: `keys` [tokens] int64. Rows beyond them belong
        to another past."""
        end = self.count
        self._keys[end - tokens : end] = keys
        self.forget_beyond(end)

    def rename(self, keys: Array) -> None:
        """Say what the first slots hold, `keys` [N] int64, whether they are lit or not."""
        self._keys[: len(keys)] = keys

    def forget_beyond(self, end: int) -> None:
        """The rows from slot `end` on hold nothing that can be gone back to."""
        if self._filled > end:
            self._keys[end : self._filled] = _EMPTY
        self._filled = end

    def hold(self, keys: Array) -> bool:
        """Tell whether the first slots still hold `keys` [N] int64."""
        return np.array_equal(self._keys[: len(keys)], keys)
