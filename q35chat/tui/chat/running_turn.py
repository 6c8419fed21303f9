"""A running turn: events come from a worker thread, batches go to the screen frame by frame.

The thread never waits: a deque append cannot block. Drawing costs the decode loop what it takes
from the cores, so that share is bounded and the frame rate follows from what frames really cost.
Knows events, no widget.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from q35chat.chat.events import (
    Event,
    Finished,
    Notice,
    PrefillProgress,
    PromptLikelihoods,
    PromptPlan,
    Token,
    VisionProgress,
)
from q35chat.errors import Q35Error

SHORTEST_S: Final = 1 / 12
LONGEST_S: Final = 1 / 3
SHARE_OF_CORES: Final = 0.03
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Batch:
    """Everything that happened since the last frame; of progress only the newest matters."""

    plan: PromptPlan | None = None
    vision: VisionProgress | None = None
    prefill: PrefillProgress | None = None
    tokens: list[Token] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    finished: Finished | None = None
    error: Exception | None = None
    ended: bool = False

    @property
    def reasoning(self) -> str:
        """The new reasoning text."""
        return "".join(token.text for token in self.tokens if token.kind == "reasoning")

    @property
    def answer(self) -> str:
        """The new answer text."""
        return "".join(token.text for token in self.tokens if token.kind == "answer")


@dataclass(slots=True)
class Pacer:
    """Says when the next frame is due. `cost` is this thread's processor time in seconds."""

    share: float = 1.0
    clock: Callable[[], float] = time.monotonic
    cost: Callable[[], float] = time.thread_time
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
    if target != "cpu":
        return Pacer()
    affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if affinity else os.cpu_count() or 1
    return Pacer(SHARE_OF_CORES * cores)


class RunningTurn:
    """The events of one turn, and how it ended: `finished` stays None when it failed."""

    def __init__(self, events: Iterator[Event], pacer: Pacer | None = None) -> None:
        self._events = events
        self._pacer = pacer or Pacer()
        self._queue: deque[Event | Exception | None] = deque()
        self._consumed = False
        self._began = time.monotonic()
        self._thinking_since = 0.0
        self.thinking_s = 0.0
        self.finished: Finished | None = None
        self.error: Exception | None = None

    @property
    def spent_s(self) -> float:
        """How long it has been, in seconds."""
        return time.monotonic() - self._began

    def consume(self) -> None:
        """Run the turn to its end; for a worker thread. Errors become part of the stream."""
        try:
            for event in self._events:
                self._queue.append(event)
        except Q35Error as error:
            self._queue.append(error)
        except Exception as error:  # noqa: BLE001 - a broken runtime must leave the chat readable
            _log.exception("a turn failed")
            self._queue.append(error)
        finally:
            self._queue.append(None)
            self._consumed = True

    def frame(self) -> Batch | None:
        """What came since the last frame, without waiting; None while no frame is due."""
        if not (self._consumed or self._pacer.due()):
            return None
        batch = Batch()
        while self._queue:
            _sort_in(batch, self._queue.popleft())
        self.finished = batch.finished or self.finished
        self.error = batch.error or self.error
        if batch.reasoning:
            now = time.monotonic()
            self._thinking_since = self._thinking_since or now
            self.thinking_s = now - self._thinking_since
        return batch


def _sort_in(batch: Batch, item: Event | Exception | None) -> None:
    match item:
        case Token():
            batch.tokens.append(item)
        case PromptPlan():
            batch.plan = item
        case VisionProgress():
            batch.vision = item
        case PrefillProgress():
            batch.prefill = item
        case Notice():
            batch.notices.append(item.text)
        case Finished():
            batch.finished = item
        case None:
            batch.ended = True
        case Exception():
            batch.error = item
        case PromptLikelihoods():
            pass
