"""Where a run writes the logits of its last tokens, and with them the largest of each block.

Knows the contract's outputs and their buffers; nothing of what is chosen from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from q35chat.engine.contract import TextContract
from q35chat.engine.session import Array, Buffer, GraphSession


@dataclass(frozen=True, slots=True)
class Logits:
    """Buffers of N rows: `values` [1, N, V], and `maxima` [1, N, V / B] of the blocks of B
    neighbouring logits where the graph tells them."""

    values: Buffer
    maxima: Buffer | None = None

    @classmethod
    def allocated(cls, session: GraphSession, contract: TextContract, rows: int) -> Logits:
        """New buffers for the outputs of `contract`."""
        values = session.allocate((1, rows, contract.vocab_size), contract.logits.dtype)
        spec = contract.maxima
        if spec is None:
            return cls(values)
        blocks = spec.shape[-1]
        assert blocks is not None
        return cls(values, session.allocate((1, rows, blocks), spec.dtype))

    def outputs(self, contract: TextContract) -> Mapping[str, Buffer]:
        """The buffers by the names of the outputs of `contract`."""
        outputs = {contract.logits.name: self.values}
        if contract.maxima is not None and self.maxima is not None:
            outputs[contract.maxima.name] = self.maxima
        return outputs

    def row(self, index: int) -> Row:
        """One of the rows."""
        return Row(self, index)


@dataclass(frozen=True, slots=True)
class Row:
    """The logits after one token, read from the device when they are asked for."""

    of: Logits
    index: int

    def values(self) -> Array:
        """The logits [V] float32; a view where that is their dtype."""
        return self._read(self.of.values)

    def maxima(self) -> Array | None:
        """Their maxima [V / B] float32, None where the graph does not tell them."""
        return None if self.of.maxima is None else self._read(self.of.maxima)

    def _read(self, buffer: Buffer) -> Array:
        row: Array = buffer.host()[0, self.index]
        return row.astype(np.float32, copy=False)
