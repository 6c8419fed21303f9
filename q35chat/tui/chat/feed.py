"""From a worker thread to the screen: events go in as they come, batches come out per frame.

The producer never waits: a deque append cannot block. Knows events, no widget.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from q35chat.chat.events import (
    Event,
    Finished,
    Notice,
    PrefillProgress,
    PromptPlan,
    Token,
    VisionProgress,
)
from q35chat.errors import Q35Error

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


class Feed:
    """The queue of one running turn."""

    def __init__(self) -> None:
        self._queue: deque[Event | Exception | None] = deque()
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether nothing more will come in."""
        return self._ended

    def consume(self, make_events: Callable[[], Iterator[Event]]) -> None:
        """Run a turn to its end; for a worker thread. Errors become part of the stream."""
        try:
            for event in make_events():
                self._queue.append(event)
        except Q35Error as error:
            self._queue.append(error)
        except Exception as error:  # noqa: BLE001 - a broken runtime must leave the chat readable
            _log.exception("a turn failed")
            self._queue.append(error)
        finally:
            self._queue.append(None)
            self._ended = True

    def drain(self) -> Batch:
        """Take all events that have arrived, without waiting."""
        batch = Batch()
        while self._queue:
            _sort_in(batch, self._queue.popleft())
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
        case _:
            batch.error = item
