"""Which beginning of a prompt is already in the state: the live one, or a snapshot of it.

Decided on slot keys alone: ids, and picture contents. Must not know texts or turns.
"""

from __future__ import annotations

import numpy as np

from q35chat.engine.decoder import Decoder
from q35chat.engine.session import Array
from q35chat.engine.states import Snapshot

DEFAULT_BUDGET = 512 << 20


class PrefixCache:
    """The snapshots of one decoder, within `budget` bytes of host memory, oldest dropped first.

    A snapshot costs its convolution and recurrent states; its KV rows lie in the decoder's own
    slots, so it dies when those slots are written again.
    """

    def __init__(self, decoder: Decoder, budget: int = DEFAULT_BUDGET) -> None:
        self._decoder = decoder
        self._budget = budget
        self._snapshots: tuple[Snapshot, ...] = ()

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """Those that can be gone back to, oldest first."""
        return tuple(kept for kept in self._snapshots if self._decoder.holds(kept))

    def reusable(self, keys: Array) -> int:
        """Count the tokens of `keys` [N] int64 that need not be read. At least one is left to read.

        May be called from any thread; during a run the answer is that of a moment.
        """
        if self._is_live(keys):
            return self._decoder.used
        found = self._best(keys)
        return found.count if found else 0

    def rewind(self, keys: Array) -> int:
        """Put the decoder where `reusable` says for `keys` [N], and return that count."""
        if not self._is_live(keys):
            if found := self._best(keys):
                self._decoder.restore(found)
            else:
                self._decoder.reset()
        return self._decoder.used

    def point(self, keys: Array) -> Snapshot | None:
        """Return the state where `reusable` says for `keys` [N], None before the first token.
        Between runs only."""
        return self._decoder.snapshot() if self._is_live(keys) else self._best(keys)

    def keep(self) -> None:
        """Take a snapshot here, and drop what is dead or over the budget."""
        kept = [*self.snapshots]
        if any(other.count == self._decoder.used for other in kept):
            return
        snapshot = self._decoder.snapshot()
        held = snapshot.nbytes + sum(other.nbytes for other in kept)
        while kept and held > self._budget:
            held -= kept.pop(0).nbytes
        self._snapshots = (*kept, snapshot) if held <= self._budget else ()

    def clear(self) -> None:
        """Forget all snapshots."""
        self._snapshots = ()

    def _is_live(self, keys: Array) -> bool:
        live = self._decoder.keys
        return 0 < len(live) < len(keys) and np.array_equal(live, keys[: len(live)])

    def _best(self, keys: Array) -> Snapshot | None:
        fitting = [
            kept
            for kept in self.snapshots
            if kept.count < len(keys) and np.array_equal(kept.keys, keys[: kept.count])
        ]
        return max(fitting, key=lambda kept: kept.count, default=None)
