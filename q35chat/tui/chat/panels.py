"""Which panel stands for which event, and the ways on that it offers."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from q35chat.chat.service import DropPlan, Forecast, Step
from q35chat.errors import CapacityError, Q35Error, RuntimeFailure, StoreError
from q35chat.text import pluralise
from q35chat.tui.chat.drafting import Whereabouts
from q35chat.tui.text import count, one_line, slots
from q35chat.tui.widgets.composer import refusal_words
from q35chat.tui.widgets.panel import Way

if TYPE_CHECKING:
    from q35chat.tui.exporting import Made
    from q35chat.tui.screens.chat import ChatScreen


@dataclass(frozen=True, slots=True)
class Then:
    """What follows once there is room: in a word, and how."""

    verb: str
    run: Callable[[], Awaitable[None]]


class Panels:
    """Shows panels on a chat screen."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen

    async def choose(self, index: int) -> None:
        """Take a way of the panel on screen, if there is one at this place. What leads on takes
        the panel away; where it fails, the other ways stay."""
        ways = self._screen.panel.ways
        if index < len(ways) and not self._screen.commands.busy():
            await ways[index].take()
            self._screen.status.refresh()

    async def load_failed(self, error: Exception, session: str | None) -> None:
        """The model or the conversation could not be opened."""
        screen = self._screen
        again = Way("Try again", lambda: screen.loader.load(session))
        fresh = Way("Start a new chat instead", lambda: screen.loader.load(None))
        setup = Way("Get a real model", lambda: screen.run_command("setup"))
        ways = (again, fresh, setup) if session else (again, setup)
        await screen.panel.show(
            "error",
            "The model is not ready",
            _cause(error),
            ways,
        )
        screen.status.refresh()

    def open_failed(self, error: Exception) -> None:
        """Another chat could not be opened; the one on screen stays."""
        self._screen.say(_cause(error), error=True)

    async def turn_failed(
        self, error: Exception, question: Whereabouts, *, summarising: bool = False
    ) -> None:
        """A turn ended in an error; what was written stays. Only a runtime that failed, or what
        nobody expected, is helped by a restart."""
        if isinstance(error, CapacityError) and summarising:
            await self._capacity("There is no room for a summary", _cause(error), summary=False)
            return
        if isinstance(error, CapacityError):
            title = "There is no room for this turn"
            then = None if self._screen.composer.empty else self._sending
            await self._capacity(title, _cause(error), then=then)
            return
        if isinstance(error, Q35Error) and not isinstance(error, RuntimeFailure):
            title = "The summary failed" if summarising else "The answer failed"
            ways = [] if question == "past" else [self._again_way(question, summarising)]
            if isinstance(error, StoreError):
                ways.append(self._new_way())
        else:
            title = "The answer failed; the chat is safe"
            label = "Restart the model and open this chat again"
            ways = [Way(label, self._screen.loader.restart)]
        if self._screen.steps:
            ways.append(self._export_way())
        await self._screen.panel.show("error", title, _cause(error), tuple(ways))

    def _again_way(self, question: Whereabouts, summarising: bool) -> Way:
        """The turn once more: with the question that is back in the composer, else from where the
        chat stands now."""
        screen = self._screen
        last = screen.steps[-1].turn if screen.steps else None
        if summarising:
            command = "summarise"
        elif question == "back" or last is None:
            return Way("Try again", screen.sending.send)
        elif last.role == "assistant" and last.finish != "stop":
            command = "proceed"
        else:
            command = "regenerate"
        return Way("Try again", lambda: screen.run_command(command))

    async def restart_failed(self, error: Exception) -> None:
        """The model could not be loaded again; the conversation can still be read."""
        await self._screen.panel.show(
            "error",
            "The model did not start again; the chat is safe",
            _cause(error),
            (Way("Try again", self._screen.loader.restart), self._export_way()),
        )

    async def use_failed(self, error: Exception, made: Made) -> None:
        """Another model could not be loaded; the one that is there goes on answering."""
        await self._screen.panel.show(
            "error",
            f"{made.model} could not be opened; the present model stays",
            _cause(error),
            (Way("Try again", lambda: self._screen.loader.use(made)),),
        )

    async def too_large(self, forecast: Forecast) -> None:
        """The draft does not fit."""
        words = refusal_words(forecast)
        reason = f"{words[:1].upper()}{words[1:]}."
        room = forecast.turn_slots + 1
        await self._capacity("This turn does not fit", reason, room=room, then=self._sending)

    async def capacity_reached(self) -> None:
        """The answer came to the end of the slots."""
        capacity = self._screen.meter.capacity
        await self._capacity(
            "Capacity reached",
            f"All {count(capacity.total)} slots are used. The answer so far is kept.",
            then=Then("go on", lambda: self._screen.run_command("proceed")),
        )

    @property
    def _sending(self) -> Then:
        return Then("send", self._screen.sending.send)

    async def _capacity(
        self,
        title: str,
        text: str,
        *,
        room: int = 0,
        then: Then | None = None,
        summary: bool = True,
    ) -> None:
        """Offer the ways that help; leaving turns out frees at least `room` slots, then does
        `then`. Where none does, say what would."""
        screen = self._screen
        plan = await asyncio.to_thread(self._drop_plan, room)
        ways = [] if plan is None else [self._drop_way(plan, then)]
        begun = bool(screen.steps)
        summarised = screen.conversation is not None and bool(screen.conversation.summary)
        if (begun or summarised) and await asyncio.to_thread(self._fits_anew):
            ways.insert(0, self._new_way())
            if begun and summary:
                label = "New chat from a summary that the model writes first"
                ways.append(Way(label, lambda: screen.run_command("summarise")))
        if ways and begun:
            ways.append(self._export_way())
        if not ways:
            text = f"{text} {self._what_would()}".rstrip()
        await screen.panel.show("warning", title, text, tuple(ways))
        screen.status.warn()
        screen.status.refresh()

    def _fits_anew(self) -> bool:
        """Whether the draft, if there is one, fits a chat that holds nothing yet. For a worker
        thread."""
        text, attachments = self._screen.forecasting.draft()
        if not (text or attachments):
            return True
        try:
            return self._screen.workspace.new().forecast(text, attachments).fits
        except Q35Error:
            return False

    def _what_would(self) -> str:
        pictures = self._screen.composer.chips.chips
        smaller = ", a smaller picture" if pictures else ""
        return (
            f"What would help: a shorter message{smaller}, or a bundle exported with a larger "
            "--max-seq-len."
        )

    def _new_way(self) -> Way:
        if self._screen.composer.empty:
            return Way("New chat", lambda: self._screen.run_command("new"))

        async def take_along() -> None:
            self._screen.drafting.carry()
            await self._screen.run_command("new")

        return Way("New chat with this message", take_along)

    def _drop_way(self, plan: DropPlan, then: Then | None) -> Way:
        pairs = sum(step.turn.role == "user" for step in plan.steps)

        async def drop() -> None:
            before = len(self.questions())
            await self._screen.run_command("drop_oldest", str(pairs))
            if len(self.questions()) == before:
                return
            self._screen.panel.dismiss()
            if then is not None:
                with self._screen.messages.held():
                    await then.run()

        what = f"Leave out {self.oldest(pairs)}" + (f" and {then.verb}" if then else "")
        cost = f"frees {slots(plan.freed_slots)}, reads {count(plan.reread_tokens)} again"
        return Way(f"{what} ({cost})", drop)

    def _drop_plan(self, room: int) -> DropPlan | None:
        """The smallest drop that leaves a question and `room` slots, or a tenth of all; else the
        largest. None where there is only one question, or the largest leaves less than `room`.
        For a worker thread."""
        conversation, most = self._screen.conversation, len(self.questions()) - 1
        if conversation is None or most < 1:
            return None
        wanted = max(room, conversation.model.capacity // 10)
        try:
            found = bisect_left(
                range(1, most),
                wanted,
                key=lambda pairs: conversation.plan_drop(pairs).slots_free,
            )
            plan = conversation.plan_drop(found + 1)
        except Q35Error:
            return None
        return plan if plan.slots_free >= room else None

    def questions(self) -> list[Step]:
        """The questions that the model reads, oldest first."""
        return [
            step for step in self._screen.steps if step.turn.role == "user" and not step.left_out
        ]

    def oldest(self, pairs: int) -> str:
        """The oldest questions in words: the first one's own, or how many."""
        if pairs > 1:
            return f"the oldest {pluralise(pairs, 'question')}"
        return f"“{one_line(self.questions()[0].turn.text, 24) or 'picture'}”"

    def _export_way(self) -> Way:
        return Way("Export to Markdown", lambda: self._screen.run_command("export"))


def _cause(error: Exception) -> str:
    if isinstance(error, Q35Error):
        return str(error)
    return f"Unexpected {type(error).__name__}: {error}"
