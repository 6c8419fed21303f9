"""Runs over tokens that may not stay, and how they are undone.

Owns which of the tokens tried are read, and those that the next run reads once more. Knows neither
who guessed them nor which graph runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Protocol

import numpy as np

from q35chat.engine.calls import Logits, LogitsRow
from q35chat.engine.contract import TextContract
from q35chat.engine.session import Array
from q35chat.engine.slots import PrefixMask
from q35chat.engine.states import StateBuffers

_MOST_CALLS = 16


class Trial(Protocol):
    """A call over so many tokens that writes every state beside the one that it reads."""

    @property
    def logits(self) -> Logits:
        """Those of the last tokens, as many as it has rows."""

    @property
    def hidden(self) -> Array | None:
        """What the model made of the tokens, [T, H], where it tells that."""

    def load(self, ids: Array, positions: Array, slot: int, images: Array | None) -> None:
        """Fill the inputs. `positions` is [3, T], `slot` the first slot written."""

    def upload(self, mask: PrefixMask) -> None:
        """Upload the mask of all slots."""

    def run(self) -> None:
        """Run once and turn the buffers of the states over."""


Trials = Callable[[int, int], Trial]
"""Makes the call over so many tokens, with logits of at least so many of the last of them."""


class LookAhead:
    """A run over tokens that may not stay: logits after each of them, states only if all are
    accepted. Nothing runs before `run`.

    The states of a sequence lie in two buffers. A run reads one and writes the other, so until the
    buffers are turned over nothing has happened; KV rows beyond the sequence are lit by no mask.
    Where only the first few tokens are accepted, the states stay where they were and those tokens
    are *behind*: the next run reads them again in front of its own.
    """

    def __init__(self, contract: TextContract, states: StateBuffers, trials: Trials) -> None:
        self.behind: tuple[int, ...] = ()
        self._states = states
        self._trials = trials
        self._mask = PrefixMask(contract.capacity or 0, contract.attention_mask.dtype)
        self._calls: dict[tuple[int, int], Trial] = {}
        self._last: Trial | None = None
        self._tried: tuple[int, ...] = ()
        self._accepted = 0

    @property
    def row(self) -> LogitsRow:
        """The logits after the last token accepted."""
        assert self._last is not None
        logits = self._last.logits
        return LogitsRow(logits, self._place(logits.values.shape[1]))

    @property
    def hidden(self) -> Array | None:
        """What the model made of the last token accepted, [1, H], where its graph tells it."""
        rows = None if self._last is None else self._last.hidden
        if rows is None:
            return None
        place = self._place(len(rows))
        return rows[place : place + 1]

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

    def _place(self, rows: int) -> int:
        """Where the last token accepted lies among the last `rows` tokens of the run."""
        return rows - len(self._tried) + self._accepted - 1

    def _run(self, tokens: Sequence[int], used: int, rope_position: int, rows: int) -> float:
        ids = np.array([*self.behind, *tokens], np.int64)
        behind = len(self.behind)
        self._mask.rewind(used)
        self._mask.advance(len(tokens))
        if (len(ids), rows) not in self._calls:  # few shapes come again and again
            if len(self._calls) == _MOST_CALLS:
                self._calls.clear()
            self._calls[len(ids), rows] = self._trials(len(ids), rows)
        self._last = call = self._calls[len(ids), rows]
        positions = np.arange(rope_position - behind, rope_position + len(tokens))
        call.load(ids, np.broadcast_to(positions, (3, len(ids))), used - behind, None)
        call.upload(self._mask)
        started = perf_counter()
        call.run()
        milliseconds = (perf_counter() - started) * 1e3
        self._states.flip()
        return milliseconds
