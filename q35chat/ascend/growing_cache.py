"""A decode step over a cache that grows: every step has shapes of its own.

Knows the contract and the buffers; does not know which token comes next.
"""

from __future__ import annotations

import numpy as np

from q35chat.engine.contract import TextContract
from q35chat.engine.session import Array, BoundRun, Buffer, GraphSession
from q35chat.engine.slots import PrefixMask
from q35chat.engine.states import StateBuffers


class GrowingStep:
    """One token at a time; the mask is as long as the cache will be after it."""

    hidden: Array | None = None  # no such graph has a draft head

    def __init__(
        self, session: GraphSession, contract: TextContract, states: StateBuffers, logits: Buffer
    ) -> None:
        self._session = session
        self._contract = contract
        self._states = states
        self._logits = logits
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
        contract, states = self._contract, self._states
        ones = np.ones((1, mask.count), contract.attention_mask.dtype)
        lit = self._session.allocate(ones.shape, ones.dtype)
        lit.write(ones)
        states.grow()
        inputs = {
            contract.input_ids.name: self._ids,
            contract.attention_mask.name: lit,
            contract.position_ids.name: self._positions,
        }
        self._run = self._session.bind(
            inputs | dict(states.inputs(states.current)),
            {contract.logits.name: self._logits} | dict(states.outputs(states.current)),
        )

    def run(self) -> None:
        """Run once and turn the states over."""
        assert self._run is not None
        self._run()
        self._states.flip()
