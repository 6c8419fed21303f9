"""One shape of call into a text graph: its buffers, bound for the turns of the states.

Knows the contract's inputs and outputs; not which token comes next, nor how it is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from q35chat.engine.contract import NO_PARTS, Parts, TextContract
from q35chat.engine.session import Array, BoundRun, Buffer, GraphSession, TensorSpec
from q35chat.engine.slots import PrefixMask
from q35chat.engine.states import BufferIndex, StateBuffers


@dataclass(frozen=True, slots=True)
class SequenceGraph:
    """What all calls into a text graph share: its session and contract, the states of one sequence,
    and the `logits` of a last token."""

    session: GraphSession
    contract: TextContract
    states: StateBuffers
    logits: Logits


class Call:
    """A run over `tokens` new tokens with `image_rows` rows of picture embeddings.

    `mask` is shared with other calls; `logits`, where they are not those of a last token, have a
    row for each of the last tokens that need one. One that `overwrites` writes every state over
    what it read. A single token behind many reads `filled` parts head by head. Buffers and host
    arrays are made once; `load` and `run` allocate nothing on the device.
    """

    def __init__(
        self,
        graph: SequenceGraph,
        mask: Buffer,
        *,
        tokens: int,
        image_rows: int,
        logits: Logits | None = None,
        overwrites: bool = False,
        filled: Parts = NO_PARTS,
    ) -> None:
        session, contract, states = graph.session, graph.contract, graph.states
        self.logits = logits = logits or graph.logits
        rows = contract.position_rows
        self._ids, ids = _pair(session, contract.input_ids, (1, tokens))
        self._positions, positions = _pair(session, contract.position_ids, (rows, 1, tokens))
        inputs = {
            contract.input_ids.name: ids,
            contract.position_ids.name: positions,
            contract.attention_mask.name: mask,
        }
        self._buffers = (ids, positions)
        self._mask = mask
        self._images: Buffer | None = None
        if contract.image_embeds is not None:
            width = contract.image_embeds.shape[-1]
            assert width is not None
            self._images = session.allocate((image_rows, width), contract.image_embeds.dtype)
            inputs[contract.image_embeds.name] = self._images
        inputs |= states.filled(contract.filled, filled)
        outputs = dict(logits.outputs(contract))
        self._hidden: Buffer | None = None
        if contract.hidden is not None:
            width = contract.hidden.shape[-1]
            assert width is not None
            self._hidden = session.allocate((1, tokens, width), contract.hidden.dtype)
            outputs[contract.hidden.name] = self._hidden
        if contract.logits_count is not None:
            spec = contract.logits_count
            count = inputs[spec.name] = session.allocate((1,), spec.dtype)
            count.write(np.array([logits.values.shape[1]], spec.dtype))
        self._session, self._states = session, states
        self._inputs, self._outputs = inputs, outputs
        self._overwrites = overwrites
        indices: tuple[BufferIndex, ...] = (states.current,) if overwrites else (0, 1)
        self._runs = {index: self._bound(index) for index in indices}

    @property
    def hidden(self) -> Array | None:
        """What the model made of the tokens of the last run, a view [T, H], where it tells that."""
        if self._hidden is None:
            return None
        rows: Array = self._hidden.host()[0]
        return rows

    def load(self, ids: Array | int, positions: Array, slot: int, images: Array | None) -> None:
        """Fill the inputs. `positions` [3, T] (or [3, 1]); `slot` is the first slot written."""
        self._ids[0] = ids
        if self._positions.shape[0] == 4:
            self._positions[0, 0] = np.arange(slot, slot + self._positions.shape[-1])
        self._positions[-3:, 0] = positions
        self._buffers[0].write(self._ids)
        self._buffers[1].write(self._positions)
        if images is not None and self._images is not None:
            self._images.write(images.astype(self._images.dtype, copy=False))

    def upload(self, mask: PrefixMask) -> None:
        """Upload the mask of all slots."""
        self._mask.write(mask.array)

    def run(self) -> None:
        """Run once; what was written is read next."""
        index = self._states.current
        if index not in self._runs:
            self._runs[index] = self._bound(index)
        self._runs[index]()
        if not self._overwrites:
            self._states.flip()

    def _bound(self, index: BufferIndex) -> BoundRun:
        states = self._states
        written = states.overwritten(index) if self._overwrites else states.outputs(index)
        return self._session.bind(
            self._inputs | dict(states.inputs(index)), self._outputs | dict(written)
        )


def _pair(session: GraphSession, spec: TensorSpec, shape: tuple[int, ...]) -> tuple[Array, Buffer]:
    return np.zeros(shape, spec.dtype), session.allocate(shape, spec.dtype)


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


@dataclass(frozen=True, slots=True)
class LogitsRow:
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
