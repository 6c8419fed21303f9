"""One running turn on screen: a worker makes events, a timer that lives only as long draws them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from textual.screen import Screen
from textual.timer import Timer

from q35chat.chat.events import Event, Finished
from q35chat.tui import garbage
from q35chat.tui.chat.feed import Batch, Feed
from q35chat.tui.chat.meter import Meter
from q35chat.tui.chat.pacing import SHORTEST_S, Pacer, pacer_for

if TYPE_CHECKING:
    from q35chat.tui.widgets.turns import AnswerView


@dataclass(frozen=True, slots=True)
class Ended:
    """How a turn ended: `finished` is None when it failed."""

    view: AnswerView
    finished: Finished | None
    error: Exception | None


class Generation:
    """Draws at most twelve times a second, less where that would slow the model."""

    def __init__(
        self,
        screen: Screen[None],
        meter: Meter,
        on_frame: Callable[[Batch], None],
        on_end: Callable[[Ended], Awaitable[None]],
    ) -> None:
        self._screen = screen
        self._meter = meter
        self._on_frame = on_frame
        self._on_end = on_end
        self._feed = Feed()
        self._pacer = Pacer()
        self._timer: Timer | None = None
        self._view: AnswerView | None = None
        self._finished: Finished | None = None
        self._error: Exception | None = None
        self._thinking_since = 0.0
        self.running = False

    def start(self, make_events: Callable[[], Iterator[Event]], view: AnswerView) -> None:
        """Begin a turn that writes into `view`. Only one runs at a time."""
        self.running = True
        self._feed = Feed()
        self._view, self._finished, self._error = view, None, None
        self._thinking_since = 0.0
        self._pacer = pacer_for(self._meter.model.target if self._meter.model else "")
        self._meter.begin()
        garbage.spare_old()
        self._screen.run_worker(
            partial(self._feed.consume, make_events), thread=True, group="generate"
        )
        self._timer = self._screen.set_interval(SHORTEST_S, self._frame)

    def _frame(self) -> None:
        if not (self._feed.ended or self._pacer.due()):
            return
        batch = self._feed.drain()
        self._meter.take(batch)
        self._finished = batch.finished or self._finished
        self._error = batch.error or self._error
        if self._view is not None and self._view.is_attached:
            self._draw(batch, self._view)
        self._on_frame(batch)
        if batch.ended:
            self._stop()

    def _draw(self, batch: Batch, view: AnswerView) -> None:
        if batch.reasoning:
            now = time.monotonic()
            self._thinking_since = self._thinking_since or now
            tokens = sum(token.kind == "reasoning" for token in batch.tokens)
            view.reasoning.write(batch.reasoning, tokens, now - self._thinking_since)
        if batch.answer:
            view.reasoning.finish()
            view.answer.write(batch.answer)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        garbage.walk_all()
        self._screen.run_worker(self._end(), group="end")

    async def _end(self) -> None:
        view = self._view
        if view is None:
            return
        if view.is_attached:
            view.finish(self._finished)
        self.running = False
        self._view = None
        await self._on_end(Ended(view, self._finished, self._error))
