"""The states of a sequence on the device, two buffers each, used alternately; and snapshots.

A state is read and written in one run only where the graph promises that it works in place: a
cache always, other states in runs that need not be undone. A cache that grows gets a fresh
buffer for each run and is never written again. Knows no tokens: `Decoder` says when to flip the
buffers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from q35chat.engine.contract import StatePair
from q35chat.engine.session import Array, Buffer, GraphSession
from q35chat.engine.tokens import Tokens

BufferIndex = Literal[0, 1]


class StateBuffers:
    """All state buffers of one sequence. The second of a pair is made when it is first asked for;
    after that nothing is allocated, growing caches aside."""

    def __init__(self, session: GraphSession, pairs: tuple[StatePair, ...]) -> None:
        self.pairs = pairs
        self._session = session
        self._buffers: dict[str, list[Buffer]] = {
            pair.past: [session.allocate(pair.shape, pair.dtype)]
            for pair in pairs
            if not pair.grows
        }
        for pair in pairs:
            if pair.in_place:
                self._buffers[pair.past] *= 2
        self._growing: dict[str, list[Buffer | None]] = {
            pair.past: [None, None] for pair in pairs if pair.grows
        }
        self.current: BufferIndex = 0

    def inputs(self, index: BufferIndex) -> Mapping[str, Buffer]:
        """The buffers that a run in `index` reads, by input name."""
        return {name: self._at(name, index) for name in self._names(index)}

    def overwritten(self, index: BufferIndex) -> Mapping[str, Buffer]:
        """What a run in `index` reads, by output name: it may write over all of it."""
        return {pair.present: self._at(pair.past, index) for pair in self.pairs}

    def outputs(self, index: BufferIndex) -> Mapping[str, Buffer]:
        """The buffers that a run in `index` writes, by output name; growing caches only where
        `grow` or `put` made them."""
        other: BufferIndex = 0 if index else 1
        names = self._names(other)
        return {pair.present: self._at(pair.past, other) for pair in self.pairs
                if pair.past in names}  # fmt: skip

    def flip(self) -> None:
        """What was written is read next."""
        self.current = 1 if self.current == 0 else 0

    def grow(self) -> None:
        """Make the buffers that the next run writes: every growing cache with one slot more."""
        for pair in self.pairs:
            if pair.grows:
                shape = list(self._at(pair.past, self.current).shape)
                shape[-2] += 1
                fresh = self._session.allocate(tuple(shape), pair.dtype)
                self._growing[pair.past][1 - self.current] = fresh

    def put(self, present: str, array: Array, slots: int) -> None:
        """What another graph made of the state `present`, from the host, to be read after the
        next `flip`; of a growing cache the first `slots` slots count."""
        pair = next(pair for pair in self.pairs if pair.present == present)
        if pair.grows:
            array = array[..., :slots, :]
            self._growing[pair.past][1 - self.current] = self._session.allocate(
                array.shape, pair.dtype
            )
        target = self._at(pair.past, 0 if self.current else 1)
        target.write(np.ascontiguousarray(array, pair.dtype).reshape(target.shape))

    def reset(self) -> None:
        """The state before the first token. Caches keep their rows: no mask lights them."""
        for pair in self._recurrent():
            self._at(pair.past, self.current).write(np.zeros(pair.shape, pair.dtype))
        for buffers in self._growing.values():
            buffers[:] = [None, None]

    def save(self) -> dict[str, Array]:
        """Host copies of every state but the caches, by input name."""
        return {
            pair.past: self._at(pair.past, self.current).host().copy() for pair in self._recurrent()
        }

    def caches(self) -> dict[str, Buffer]:
        """The growing caches as they are; nothing writes into them again."""
        return {name: self._at(name, self.current) for name in self._growing
                if self._growing[name][self.current] is not None}  # fmt: skip

    def load(self, saved: Mapping[str, Array], caches: Mapping[str, Buffer]) -> None:
        """Put back what `save` and `caches` returned. Other caches must still hold that
        sequence's rows."""
        for pair in self._recurrent():
            self._at(pair.past, self.current).write(saved[pair.past])
        for name, buffer in caches.items():
            self._growing[name][self.current] = buffer

    def _names(self, index: BufferIndex) -> list[str]:
        return [pair.past for pair in self.pairs
                if not pair.grows or self._growing[pair.past][index] is not None]  # fmt: skip

    def _at(self, name: str, index: BufferIndex) -> Buffer:
        if name in self._growing:
            grown = self._growing[name][index]
            assert grown is not None
            return grown
        buffers = self._buffers[name]
        if index == len(buffers):
            buffers.append(self._session.allocate(buffers[0].shape, buffers[0].dtype))
        return buffers[index]

    def _recurrent(self) -> tuple[StatePair, ...]:
        return tuple(pair for pair in self.pairs if not pair.cache)


@dataclass(frozen=True, slots=True, eq=False)
class LastToken:
    """The last token of a sequence as a draft head needs it: `hidden` [H] and `position` [3]."""

    hidden: Array
    position: Array


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A point to go back to: states on the host, and what was read up to it.

    The KV rows stay on the device, so it is good only while those slots are not written again;
    `caches` that grow are never written again. `tokens` are there where a prefill without states
    may have to read them again, `last` where a head makes drafts.
    """

    states: Mapping[str, Array]
    keys: Array
    rope_position: int
    caches: Mapping[str, Buffer] = field(default_factory=dict)
    tokens: Tokens | None = None
    last: LastToken | None = None

    @property
    def count(self) -> int:
        """Tokens read up to this point."""
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Memory held, on the host and in growing caches."""
        grown = sum(math.prod(b.shape) * b.dtype.itemsize for b in self.caches.values())
        return self.keys.nbytes + sum(array.nbytes for array in self.states.values()) + grown
