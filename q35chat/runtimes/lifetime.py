"""How long a session, its runs and its buffers may be used: until the session is closed.

A closed session frees everything that was made of it, whoever still refers to that. Knows no
runtime.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol
from weakref import WeakSet

from q35chat.errors import RuntimeFailure


class Releasable(Protocol):
    """What holds native memory."""

    def release(self) -> None:
        """Let the native memory go; whoever uses this afterwards gets a RuntimeFailure."""


class Lifetime:
    """That of the session of one graph, by the graph's `name`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_over = False
        self._runs: WeakSet[Releasable] = WeakSet()
        self._buffers: WeakSet[Releasable] = WeakSet()

    def check(self) -> None:
        """Raises RuntimeFailure after `end`."""
        if self._is_over:
            raise RuntimeFailure(f"the {self._name} graph is closed: open the bundle again")

    def ends_buffer(self, buffer: Releasable) -> None:
        """`buffer` ends with the session."""
        self._buffers.add(buffer)

    @staticmethod
    def of_run(run: Releasable, lives: Iterable[Lifetime]) -> tuple[Lifetime, ...]:
        """Those that `run` ends with, of its graph and of its buffers: each once."""
        each = tuple(dict.fromkeys(lives))
        for life in each:
            life._runs.add(run)
        return each

    def end(self) -> None:
        """Release all runs, then the buffers that they were bound to."""
        self._is_over = True
        for kept in (self._runs, self._buffers):
            for held in tuple(kept):
                held.release()
            kept.clear()
