"""A run over tokens that may not stay: logits after each of them, states only if all are accepted.

The states of a sequence lie in two buffers. A run reads one and writes the other, so until the
buffers are turned over nothing has happened; KV rows beyond the sequence are lit by no mask. Where
only the first few tokens are accepted, the states stay where they were and those tokens are
*behind*: the next run reads them again in front of its own. Knows no sampling and no drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np

from q35chat.engine.calls import Call, Logits, Row
from q35chat.engine.contract import TextContract
from q35chat.engine.session import Array, Buffer, GraphSession
from q35chat.engine.slots import PrefixMask
from q35chat.engine.states import StateBuffers

_MOST_CALLS = 16


class LookAhead:
    """The tokens tried and the tokens behind of one sequence; nothing runs before `run`.

    `possible` tells whether the graph gives logits of more than the last token.
    """

    def __init__(
        self,
        session: GraphSession,
        contract: TextContract,
        states: StateBuffers,
        mask: Buffer,
        logits: Logits,
    ) -> None:
        self.possible = contract.logits_count is not None and contract.capacity is not None
        self.behind: tuple[int, ...] = ()
        self._session = session
        self._contract = contract
        self._states = states
        self._mask_buffer = mask
        self._mask = PrefixMask(contract.capacity or 0, contract.attention_mask.dtype)
        self._logits = {1: logits}
        self._calls: dict[tuple[int, int], Call] = {}
        self._last: Call | None = None
        self._tried: tuple[int, ...] = ()
        self._accepted = 0

    @property
    def row(self) -> Row:
        """The logits after the last token accepted."""
        return Row(self._logits[len(self._tried)], self._accepted - 1)

    @property
    def hidden(self) -> Array | None:
        """What the model made of the last token accepted, [1, H], where its graph tells it."""
        rows = None if self._last is None else self._last.hidden
        if rows is None:
            return None
        end = len(rows) - len(self._tried) + self._accepted
        return rows[end - 1 : end]

    def forget(self) -> None:
        """The sequence goes on somewhere else."""
        self.behind = self._tried = ()
        self._accepted = 0

    def run(self, tokens: Sequence[int], used: int, rope_position: int) -> float:
        """Try text `tokens` after the `used` slots of the sequence; milliseconds in the runtime.

        `rope_position` is that of the first of them. Raises NoSlotError before anything runs.
        """
        self._tried, self._accepted = (), 0
        milliseconds = self._run(tokens, used, rope_position, rows=len(tokens))
        self._tried = tuple(tokens)
        return milliseconds

    def accept(self) -> int:
        """The next of the tokens tried is now read; which one it is."""
        token = self._tried[self._accepted]
        self._accepted += 1
        if self._accepted == len(self._tried):
            self.behind = ()
            self._states.flip()
        else:
            self.behind = (*self.behind, token)
        return token

    def catch_up(self, used: int, rope_position: int) -> None:
        """Bring the states up to the last token read, `used` slots and `rope_position` in all."""
        if self.behind:
            self._run((), used, rope_position, rows=1)
            self._states.flip()
        self.forget()

    def _run(self, tokens: Sequence[int], used: int, rope_position: int, rows: int) -> float:
        ids = np.array([*self.behind, *tokens], np.int64)
        behind = len(self.behind)
        self._mask.rewind(used)
        self._mask.advance(len(tokens))
        if rows not in self._logits:
            self._logits[rows] = Logits.allocated(self._session, self._contract, rows)
        if (len(ids), rows) not in self._calls:  # few shapes come again and again
            if len(self._calls) == _MOST_CALLS:
                self._calls.clear()
            self._calls[len(ids), rows] = Call(
                self._session,
                self._contract,
                self._states,
                self._mask_buffer,
                self._logits[rows],
                tokens=len(ids),
                image_rows=0,
            )
        self._last = call = self._calls[len(ids), rows]
        positions = np.arange(rope_position - behind, rope_position + len(tokens))
        call.load(ids, np.broadcast_to(positions, (3, len(ids))), used - behind, None)
        call.upload(self._mask)
        started = perf_counter()
        call.run()
        milliseconds = (perf_counter() - started) * 1e3
        self._states.flip()
        return milliseconds
