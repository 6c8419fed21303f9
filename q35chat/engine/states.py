"""The states of a sequence on the device, two buffers each, used alternately; and snapshots.

A state is read and written in one run only where the graph promises that it works in place: a
cache always, other states in runs that need not be undone. Knows no tokens: the decoder says when
to flip the buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from q35chat.engine.contract import HeadRows, Parts, StatePair
from q35chat.engine.session import Array, Buffer, GraphSession, check_fit

BufferIndex = Literal[0, 1]


class StateBuffers:
    """All state buffers of one sequence, of fixed shapes; `current` is the index that is read. The
    second of a pair is made when it is first asked for; after that nothing is allocated."""

    def __init__(self, session: GraphSession, pairs: tuple[StatePair, ...]) -> None:
        self.pairs = pairs
        self._session = session
        self._buffers = {
            pair.past: [session.allocate(pair.shape, pair.dtype)] * (2 if pair.in_place else 1)
            for pair in pairs
        }
        self.current: BufferIndex = 0

    def inputs(self, index: BufferIndex) -> Mapping[str, Buffer]:
        """The buffers that a run at `index` reads, by input name."""
        return {pair.past: self._at(pair, index) for pair in self.pairs}

    def overwritten(self, index: BufferIndex) -> Mapping[str, Buffer]:
        """The buffers that a run at `index` reads, by output name, to be written over."""
        return {pair.present: self._at(pair, index) for pair in self.pairs}

    def outputs(self, index: BufferIndex) -> Mapping[str, Buffer]:
        """The buffers that a run at `index` writes, by output name."""
        return {pair.present: self._at(pair, 0 if index else 1) for pair in self.pairs}

    def filled(self, heads: Iterable[HeadRows], parts: Parts) -> Mapping[str, Buffer]:
        """The first slots of `heads` of the caches, where they lie, by input name."""
        whole, apart = (parts.number * parts.rows,), (parts.number, 1, parts.rows)
        return {
            one.name: self._buffers[one.past][0].head_rows(
                one.head, apart if one.in_parts else whole
            )
            for one in heads
        }

    def flip(self) -> None:
        """What was written is read next."""
        self.current = 0 if self.current else 1

    def reset(self) -> None:
        """The state before the first token. Caches keep their rows: no mask shows them."""
        for pair in self._recurrent():
            self._at(pair, self.current).write(np.zeros(pair.shape, pair.dtype))

    def save(self) -> dict[str, Array]:
        """Host copies of every state but the caches, by input name, of its shape and dtype."""
        return {pair.past: self._at(pair, self.current).host().copy() for pair in self._recurrent()}

    def load(self, saved: Mapping[str, Array]) -> None:
        """Put back what `save` returned. Caches must still hold that sequence's rows."""
        for pair in self._recurrent():
            self._at(pair, self.current).write(saved[pair.past])

    def dump(self, snapshot: Snapshot) -> Iterator[tuple[str, Array]]:
        """All that `snapshot` is, KV rows too, as arrays by name; views where the host has them.

        A name that begins with `past_` is that of an input.
        """
        yield "keys", snapshot.keys
        yield "rope_position", np.array([snapshot.rope_position], np.int64)
        yield from snapshot.states.items()
        yield from self.rows(snapshot.count)

    def rows(self, count: int) -> Iterator[tuple[str, Array]]:
        """The first `count` slots of each cache, by input name."""
        for pair in self.pairs:
            if pair.cache:
                yield pair.past, self._at(pair, self.current).host()[..., :count, :]

    def fill(self, arrays: Mapping[str, Array], count: int) -> None:
        """Put back what `dump` gave, `count` slots of it, into these or other buffers. Raises
        ValueError where something is missing or does not fit."""
        for pair in self.pairs:
            buffer, array = self._at(pair, self.current), named(arrays, pair.past)
            if not pair.cache:
                buffer.write(array)
            elif array.shape[-2:-1] == (count,):
                buffer.write_slots(array)
            else:
                raise ValueError(f"{pair.past} has {array.shape}, {count} slots are wanted")

    def _at(self, pair: StatePair, index: BufferIndex) -> Buffer:
        buffers = self._buffers[pair.past]
        if index == len(buffers):
            buffers.append(self._session.allocate(pair.shape, pair.dtype))
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
    """A point in a sequence to go back to: `states` on the host and the `keys` [N] int64 of what
    was read up to it. `last` is there where a head makes drafts.

    The KV rows stay on the device, so it is good only while those slots are not written again.
    """

    states: Mapping[str, Array]
    keys: Array
    rope_position: int
    last: LastToken | None = None

    @property
    def count(self) -> int:
        """Tokens read up to this point."""
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return self.keys.nbytes + sum(array.nbytes for array in self.states.values())

    def check(self, *, held: bool) -> None:
        """Raises ValueError where its KV rows are not `held` any more."""
        if not held:
            raise ValueError(f"the slots of a snapshot of {self.count} tokens were overwritten")


def named(arrays: Mapping[str, Array], name: str) -> Array:
    """The array of that name. Raises ValueError where there is none."""
    if name not in arrays:
        raise ValueError(f"{name} is missing")
    return arrays[name]


def dumped_place(arrays: Mapping[str, Array], capacity: int) -> tuple[Array, int]:
    """The keys [N] int64 and the rotary position in what `StateBuffers.dump` gave. Raises
    ValueError for what no sequence of at most `capacity` tokens has."""
    keys, rope = named(arrays, "keys"), named(arrays, "rope_position")
    check_fit(keys, (min(keys.size, capacity),), np.dtype(np.int64))
    check_fit(rope, (1,), np.dtype(np.int64))
    if not (len(keys) and 0 < rope[0] <= len(keys)):
        raise ValueError(f"{len(keys)} tokens end at the rotary position {rope[0]}")
    return keys, int(rope[0])
