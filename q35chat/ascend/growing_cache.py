"""KV caches that get a slot longer with every token, and the decode step over them.

Every step has shapes of its own. Knows the contract and the buffers; not which token comes next.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from q35chat.engine.calls import SequenceGraph
from q35chat.engine.contract import StatePair
from q35chat.engine.session import Array, BoundRun, Buffer, GraphSession, check_fit
from q35chat.engine.slots import PrefixMask
from q35chat.engine.states import named


class GrowingCaches:
    """The caches of one sequence: each run writes fresh buffers, and none is written again."""

    def __init__(self, session: GraphSession, pairs: tuple[StatePair, ...]) -> None:
        self.pairs = pairs
        self._session = session
        self._now: dict[str, Buffer] = {}
        self._next: dict[str, Buffer] = {}

    @property
    def now(self) -> Mapping[str, Buffer]:
        """The buffers that are read next, by input name."""
        return self._now

    def grow(self) -> Mapping[str, Buffer]:
        """Make the buffers that the next run writes, one slot longer; by output name."""
        for pair in self.pairs:
            *outer, slots, width = self._now[pair.past].shape
            self._next[pair.past] = self._session.allocate((*outer, slots + 1, width), pair.dtype)
        return {pair.present: self._next[pair.past] for pair in self.pairs}

    def put(self, present: str, array: Array, slots: int) -> None:
        """What another graph made of the cache `present`, from the host, to be read after the next
        `flip`; `slots` of it count."""
        pair = next(pair for pair in self.pairs if pair.present == present)
        rows = np.ascontiguousarray(array[..., :slots, :], pair.dtype)
        self._next[pair.past] = buffer = self._session.allocate(rows.shape, pair.dtype)
        buffer.write(rows)

    def flip(self) -> None:
        """What was written is read next."""
        self._now, self._next = self._next, {}

    def fill(self, arrays: Mapping[str, Array], count: int) -> None:
        """Become what `arrays` by input name are, of `count` slots each. Raises ValueError where
        one is missing or does not fit."""
        for pair in self.pairs:
            rows = named(arrays, pair.past)
            *outer, _, width = pair.shape
            check_fit(rows, (*outer, count, width), pair.dtype)
            self._now[pair.past] = buffer = self._session.allocate(rows.shape, pair.dtype)
            buffer.write(rows)

    def load(self, buffers: Mapping[str, Buffer]) -> None:
        """Go back to what `now` once was; none at all before the first token."""
        self._now = dict(buffers)


class GrowingStep:
    """One token at a time; the mask is as long as the cache will be after it."""

    def __init__(self, graph: SequenceGraph, caches: GrowingCaches) -> None:
        session, contract = graph.session, graph.contract
        self._graph = graph
        self._caches = caches
        rows = contract.position_rows
        self._ids = session.allocate((1, 1), contract.input_ids.dtype)
        self._positions = session.allocate((rows, 1, 1), contract.position_ids.dtype)
        self._run: BoundRun | None = None

    def load(self, token: Array | int, positions: Array, slot: int, images: Array | None) -> None:
        """Fill the inputs for `token` at `slot`; `positions` is [3, 1]. Takes no pictures."""
        assert images is None
        self._ids.write(np.full((1, 1), token, self._ids.dtype))
        places = np.full(self._positions.shape, slot, self._positions.dtype)
        places[-3:, 0] = positions
        self._positions.write(places)

    def upload(self, mask: PrefixMask) -> None:
        """Make and bind the buffers of this step, whose mask is all ones."""
        session, contract, states = self._graph.session, self._graph.contract, self._graph.states
        caches = self._caches
        ones = np.ones((1, mask.count), contract.attention_mask.dtype)
        shown = session.allocate(ones.shape, ones.dtype)
        shown.write(ones)
        inputs = {
            contract.input_ids.name: self._ids,
            contract.attention_mask.name: shown,
            contract.position_ids.name: self._positions,
        }
        outputs = {contract.logits.name: self._graph.logits.values} | dict(caches.grow())
        self._run = session.bind(
            inputs | dict(states.inputs(states.current)) | dict(caches.now),
            outputs | dict(states.outputs(states.current)),
        )

    def run(self) -> None:
        """Run once and flip the states."""
        assert self._run is not None
        self._run()
        self._graph.states.flip()
        self._caches.flip()
