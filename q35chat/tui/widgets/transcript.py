"""The conversation on screen: a bounded window of turns over a history of any length.

The views of turns are imported with the first one: the first paint must not wait for them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from textual._styles_cache import StylesCache
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from q35chat.chat.service import Step
from q35chat.chat.values import HEADING, Turn
from q35chat.text import pluralise
from q35chat.tui.application import key_of
from q35chat.tui.text import clean
from q35chat.tui.widgets.containers import FollowScroll

if TYPE_CHECKING:
    from q35chat.tui.widgets.turns import AnswerView, TurnView

PAGE: Final = 12
MOST_MOUNTED: Final = 36


class Edge(Static):
    """A line that stands for turns outside the window."""

    def __init__(self, side: str, ask: Callable[[], Awaitable[None]]) -> None:
        super().__init__(classes="edge")
        self.side, self._ask = side, ask
        self.display = False

    def show(self, hidden: int) -> None:
        """Say how many turns are hidden; vanish when none are."""
        self.display = hidden > 0
        arrow, command = ("↑", "earliest") if self.side == "earlier" else ("↓", "follow")
        key = key_of(self, command)
        turns = pluralise(hidden, f"{self.side} turn")
        self.update(Content(f"{arrow} {turns} · {f'{key} or ' if key else ''}click"))

    def on_click(self) -> None:
        """A click asks for more."""
        self.screen.call_later(self._ask)


class Transcript(FollowScroll):
    """Owns which turns are mounted. Finished turns mirror the conversation; drafts stand last."""

    def __init__(self) -> None:
        super().__init__(id="transcript")
        self.model_name = ""
        self._summary = ""
        self._steps: list[Step] = []
        self._start = 0
        self._views: list[TurnView] = []
        self._followed = False

    def compose(self) -> ComposeResult:
        """What was said before, then the edges; turns are mounted between them."""
        yield Static(id="summary", markup=False)
        yield Edge("earlier", self.earlier)
        yield Edge("later", self.later)

    def on_mount(self) -> None:
        """Follow from the beginning."""
        self._refresh_edges()
        self.anchor()

    @property
    def views(self) -> Sequence[TurnView]:
        """The mounted turns, oldest first."""
        return self._views

    @property
    def hidden_before(self) -> int:
        """Turns earlier than the window."""
        return self._start

    @property
    def hidden_after(self) -> int:
        """Turns later than the window."""
        return max(0, len(self._steps) - self._start - len(self._views))

    def begin_with(self, summary: str) -> None:
        """Show what the conversation goes on from above its first turn; empty is nothing."""
        self._summary = summary
        self.query_one("#summary", Static).update(
            Content.assemble((f"{HEADING}\n", "bold"), clean(summary.strip()))
        )
        self._refresh_edges()

    async def show(self, steps: Sequence[Step]) -> None:
        """Show the end of another history."""
        self._steps = _visible(steps)
        self._start = max(0, len(self._steps) - PAGE)
        with self.app.batch_update():
            await self._unmount(self._views)
            self._views = []
            await self._mount_at_end(self._steps[self._start :])
        self._refresh_edges()
        self.anchor()

    async def synchronise(self, steps: Sequence[Step]) -> None:
        """Make the window agree with the conversation, touching only what differs."""
        self._steps = _visible(steps)
        expected = self._steps[self._start :]
        same = 0
        for view, step in zip(self._views, expected, strict=False):
            if not view.fits(step):
                break
            view.adopt(step)
            same += 1
        stale, self._views = self._views[same:], self._views[:same]
        with self.app.batch_update():
            await self._unmount(stale)
            await self._mount_at_end(expected[same:])
        if self.following:
            await self._trim_start()
        self._refresh_edges()

    async def turn_to(self, steps: Sequence[Step]) -> None:
        """Show another branch; where the window does not reach its end, move the window there."""
        reached = self._start < len(steps) <= self._start + MOST_MOUNTED
        await (self.synchronise(steps) if reached else self.show(steps))

    async def begin(self, question: Turn | None, instead_of: str | None = None) -> AnswerView:
        """Put a draft answer at the end, after a question if there is a new one. The turn with
        the id `instead_of` and all later ones go first."""
        from q35chat.tui.widgets.turns import AnswerView, Question  # noqa: PLC0415

        if instead_of is not None:
            await self._cut_from(instead_of)
        if self.hidden_after:
            await self.show(self._steps)
        fresh: list[TurnView] = []
        if question is not None:
            fresh.append(Question(Step("", question)))
        answer = AnswerView(Step("", Turn("assistant", "")), self.model_name)
        fresh.append(answer)
        await self._mount_views(fresh)
        self.anchor()
        return answer

    async def reopen_last(self) -> AnswerView:
        """The last answer, made ready to go on; a new one where the last turn is none."""
        from q35chat.tui.widgets.turns import AnswerView  # noqa: PLC0415

        if self.hidden_after:
            await self.show(self._steps)
        last = self._views[-1] if self._views else None
        if not isinstance(last, AnswerView):
            return await self.begin(None)
        last.reopen()
        self.anchor()
        return last

    async def _cut_from(self, step_id: str) -> None:
        ids = [step.id for step in self._steps]
        if step_id not in ids:
            return
        keep = max(0, ids.index(step_id) - self._start)
        stale, self._views = self._views[keep:], self._views[:keep]
        await self._unmount(stale)

    async def earlier(self) -> None:
        """Mount a page of turns before the window; drop the far end when it grows too long."""
        if not self._start:
            return
        first = max(0, self._start - PAGE)
        fresh = [self._view(step) for step in self._steps[first : self._start]]
        height, place = self.virtual_size.height, self.scroll_y
        self.release_anchor()
        with self.app.batch_update():
            await self.mount_all(fresh, after=self.query_one(Edge))
            self._views[:0] = fresh
            self._start = first
            stale, self._views = self._views[MOST_MOUNTED:], self._views[:MOST_MOUNTED]
            self._refresh_edges()
        tail = sum(view.outer_size.height for view in stale)
        await self._unmount(stale)

        def keep_place() -> None:
            grown = self.virtual_size.height + tail - height
            self.scroll_to(y=place + grown, animate=False, force=True)

        self.call_after_refresh(keep_place)

    async def later(self) -> None:
        """Mount a page of turns after the window."""
        if not self.hidden_after:
            return
        end = self._start + len(self._views)
        await self._mount_at_end(self._steps[end : end + PAGE])
        await self._trim_start()
        self._refresh_edges()

    async def to_end(self) -> None:
        """Show the newest turns and follow them."""
        if self.hidden_after:
            await self.show(self._steps)
        self.anchor()

    async def reveal(self, step_id: str) -> None:
        """Have a turn at the top of what is in sight, where the window then is."""
        places = [place for place, step in enumerate(self._steps) if step.id == step_id]
        if not places:
            return
        place = places[0]
        if not self._start <= place < self._start + len(self._views):
            self._start = max(0, place - PAGE // 4)
            with self.app.batch_update():
                await self._unmount(self._views)
                self._views = []
                await self._mount_at_end(self._steps[self._start : self._start + 2 * PAGE])
            self._refresh_edges()
        self.release_anchor()
        view = self._views[place - self._start]
        self.call_after_refresh(self.scroll_to_widget, view, animate=False, top=True, force=True)

    def turn_reasoning(self) -> bool:
        """Open the reasoning of the answers in sight, or fold it where all of it is open; whether
        there is any. What was opened is scrolled to, the last of several; folded again, the text
        is followed as before."""
        from q35chat.tui.widgets.reasoning import Reasoning  # noqa: PLC0415

        seen = [view for view in self._views if view.region.overlaps(self.region)]
        boxes = [box for view in seen for box in view.query(Reasoning) if box.text]
        folded = [box for box in boxes if box.folded]
        if folded:
            self._followed = self.following
        for box in folded or boxes:
            box.toggle(into_view=box in folded[-1:])
        if self._followed and not folded:
            self.anchor()
        return bool(boxes)

    async def _trim_start(self) -> None:
        surplus = len(self._views) - MOST_MOUNTED
        if surplus > 0:
            stale, self._views = self._views[:surplus], self._views[surplus:]
            self._start += surplus
            await self._unmount(stale)

    async def _mount_at_end(self, steps: Sequence[Step]) -> None:
        await self._mount_views([self._view(step) for step in steps])

    async def _mount_views(self, fresh: list[TurnView]) -> None:
        if fresh:
            await self.mount_all(fresh, before=self.query(Edge).last())
            self._views += fresh

    async def _unmount(self, views: Sequence[TurnView]) -> None:
        for view in views:
            await view.remove()
        StylesCache.get_inner_outer.cache_clear()  # it keeps what removed widgets have drawn

    def _view(self, step: Step) -> TurnView:
        from q35chat.tui.widgets.turns import AnswerView, Question  # noqa: PLC0415

        if step.turn.role == "user":
            return Question(step)
        return AnswerView(step, step.model or self.model_name)

    def _refresh_edges(self) -> None:
        self.query_one("#summary").display = bool(self._summary) and not self.hidden_before
        earlier, later = self.query(Edge)
        earlier.show(self.hidden_before)
        later.show(self.hidden_after)


def _visible(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if step.turn.role != "system"]
