"""How often to draw while the model computes on the same processor.

Drawing costs the decode loop what it takes from the cores, so the share is bounded and the
frame rate follows from what frames really cost. Pure but for the clock it is given.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, thread_time
from typing import Final

SHORTEST_S: Final = 1 / 12
LONGEST_S: Final = 1 / 3
SHARE_OF_CORES: Final = 0.03


def cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(slots=True)
class Pacer:
    """Says when the next frame is due. `cost` is this thread's processor time in seconds."""

    share: float = 1.0
    clock: Callable[[], float] = monotonic
    cost: Callable[[], float] = thread_time
    _due: float = 0.0
    _spent: float | None = None

    def due(self) -> bool:
        """Whether a frame may be drawn now; if so, the next one is planned from the last cost."""
        now = self.clock()
        if now < self._due:
            return False
        spent = self.cost()
        last = 0.0 if self._spent is None else spent - self._spent
        self._spent = spent
        self._due = now + min(LONGEST_S, max(SHORTEST_S, last / self.share)) - SHORTEST_S / 2
        return True


def pacer_for(target: str) -> Pacer:
    """Bounded where the model runs on the processor; as fast as frames come elsewhere."""
    return Pacer(SHARE_OF_CORES * cores() if target == "cpu" else 1.0)
