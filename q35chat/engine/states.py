"""The states of a sequence on the device: two buffers each, used alternately.

A state is never read and written in one run, except where the graph promises it works in
place. Knows no tokens: `Decoder` says when to turn the buffers over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from q35chat.engine.contract import StatePair
from q35chat.engine.session import Array, Buffer, GraphSession

Turn = Literal[0, 1]


class StateBuffers:
    """All state buffers of one sequence; nothing is allocated after construction."""

    def __init__(self, session: GraphSession, pairs: tuple[StatePair, ...]) -> None:
        self._pairs = pairs
        self._buffers = {pair.past: _allocate(session, pair) for pair in pairs}
        self.turn: Turn = 0

    def inputs(self, turn: Turn) -> Mapping[str, Buffer]:
        """The buffers that a run in `turn` reads, by input name."""
        return {pair.past: self._buffers[pair.past][turn] for pair in self._pairs}

    def outputs(self, turn: Turn) -> Mapping[str, Buffer]:
        """The buffers that a run in `turn` writes, by output name."""
        return {pair.present: self._buffers[pair.past][1 - turn] for pair in self._pairs}

    def flip(self) -> None:
        """What was written is read next."""
        self.turn = 1 if self.turn == 0 else 0

    def reset(self) -> None:
        """The state before the first token. Caches keep their rows: no mask lights them."""
        for pair in self._recurrent():
            self._buffers[pair.past][self.turn].write(np.zeros(pair.shape, pair.dtype))

    def save(self) -> dict[str, Array]:
        """Host copies of every state but the caches, by input name."""
        return {
            pair.past: self._buffers[pair.past][self.turn].host().copy()
            for pair in self._recurrent()
        }

    def load(self, saved: Mapping[str, Array]) -> None:
        """Put back what `save` returned. The caches must still hold that sequence's rows."""
        for pair in self._recurrent():
            self._buffers[pair.past][self.turn].write(saved[pair.past])

    def _recurrent(self) -> tuple[StatePair, ...]:
        return tuple(pair for pair in self._pairs if not pair.cache)


def _allocate(session: GraphSession, pair: StatePair) -> tuple[Buffer, Buffer]:
    first = session.allocate(pair.shape, pair.dtype)
    second = first if pair.in_place else session.allocate(pair.shape, pair.dtype)
    return first, second
