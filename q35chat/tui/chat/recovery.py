"""Recovery: the panels for turns that failed or do not fit, and the ways on that they offer."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from q35chat.chat.service import DropPlan, Forecast, Step
from q35chat.chat.text_files import TextFile
from q35chat.errors import CapacityError, Q35Error, RuntimeFailure, StoreError
from q35chat.text import pluralise
from q35chat.tui.chat.draft import Draft, Whereabouts
from q35chat.tui.chat.host import Host
from q35chat.tui.chat.session import Session
from q35chat.tui.chat.view import busy
from q35chat.tui.text import cause, count, one_line, slots
from q35chat.tui.widgets.composer import refusal_words
from q35chat.tui.widgets.messages import Messages
from q35chat.tui.widgets.panel import Panel, Way

_LEAST_ANSWER: Final = 16

Then = tuple[str, Callable[[], Awaitable[None]]]
"""What follows once there is room: in a word, and how."""


@dataclass(eq=False)
class Recovery:
    """Shows a panel for what went wrong; `send` sends the draft, `restart` reloads the model."""

    session: Session
    draft: Draft
    panel: Panel
    messages: Messages
    host: Host
    send: Callable[[], Awaitable[None]]
    restart: Callable[[], None]

    async def choose(self, index: int) -> None:
        """Take a way of the panel on screen, if there is one at this place. What leads on takes
        the panel away; where it fails, the other ways stay."""
        ways, why_not = self.panel.ways, busy(self.session)
        if index < len(ways) and why_not:
            self.host.say(why_not)
        elif index < len(ways):
            await ways[index].take()
            self.host.refresh()

    async def turn_failed(
        self, error: Exception, question: Whereabouts, *, summarising: bool = False
    ) -> None:
        """A turn ended in an error; what was written stays. Only a runtime that failed, or what
        nobody expected, is helped by a restart."""
        if isinstance(error, CapacityError) and summarising:
            await self._no_room("There is no room for a summary", cause(error), summary=False)
            return
        if isinstance(error, CapacityError):
            then = None if self.draft.composer.empty else ("send", self.send)
            await self._no_room("There is no room for this turn", cause(error), then=then)
            return
        if isinstance(error, Q35Error) and not isinstance(error, RuntimeFailure):
            title = "The summary failed" if summarising else "The answer failed"
            ways = [] if question == "past" else [self._again_way(question, summarising)]
            if isinstance(error, StoreError):
                ways.append(self._new_way())
        else:
            title = "The answer failed; the chat is safe"
            ways = [Way("Restart the model and open this chat again", self.restart)]
        if self.session.steps:
            ways.append(self._way("Export to Markdown", "export"))
        await self.panel.show("error", title, cause(error), tuple(ways))

    async def too_large(self, forecast: Forecast) -> None:
        """The draft does not fit."""
        words, room = refusal_words(forecast), forecast.turn_slots + 1
        reason = f"{words[:1].upper()}{words[1:]}."
        then = ("send", self.send)
        await self._no_room("This turn does not fit", reason, room=room, then=then)

    async def file_too_large(self, file: TextFile) -> None:
        """The text of a file has no room in this chat: its beginning may have."""
        conversation = self.session.current
        free = max(0, conversation.model.capacity - conversation.used_slots)
        room = free - max(_LEAST_ANSWER, free // 4)
        over = f"{slots(file.slots)}, {count(free)} are free: {count(file.slots - free)} too many."
        ways = []
        if room > _LEAST_ANSWER:
            part = await asyncio.to_thread(
                lambda: conversation.measured(file.beginning(0.95 * room / file.slots))
            )
            label = f"Attach its beginning ({part.part}, {slots(part.slots)})"
            ways.append(Way(label, partial(self._attach_part, part)))
        if self.session.steps and file.slots < conversation.model.capacity - _LEAST_ANSWER:
            ways.append(self._new_way())
        await self.panel.show(
            "warning", "This file does not fit", f"{file.name} takes {over}", tuple(ways)
        )
        self.host.refresh()

    def _attach_part(self, part: TextFile) -> None:
        self.panel.dismiss()
        self.draft.add(part)

    async def capacity_reached(self) -> None:
        """The answer came to the end of the slots."""
        total = count(self.session.meter.capacity.total)
        text = f"All {total} slots are used. The answer so far is kept."
        then = ("go on", partial(self.host.run, "proceed"))
        await self._no_room("Capacity reached", text, then=then)

    async def _no_room(
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
        session = self.session
        plan = await asyncio.to_thread(self._drop_plan, room)
        ways = [] if plan is None else [self._drop_way(plan, then)]
        begun = bool(session.steps)
        summarised = session.conversation is not None and bool(session.conversation.summary)
        if (begun or summarised) and await asyncio.to_thread(self._fits_anew):
            ways.insert(0, self._new_way())
            if begun and summary and await asyncio.to_thread(self._can_be_summarised):
                label = "New chat from a summary that the model writes first"
                ways.append(self._way(label, "summarise"))
        if ways and begun:
            ways.append(self._way("Export to Markdown", "export"))
        if not ways:
            smaller = ", a smaller picture" if self.draft.composer.chips.chips else ""
            remote = session.model is not None and session.model.remote
            larger = (
                "a server started with more context"
                if remote
                else "a bundle exported with a larger --max-seq-len"
            )
            text = f"{text} What would help: a shorter message{smaller}, or {larger}."
        await self.panel.show("warning", title, text, tuple(ways))
        session.warn(panel=True)
        self.host.refresh()

    def _way(self, label: str, command_id: str) -> Way:
        return Way(label, partial(self.host.run, command_id))

    def _again_way(self, question: Whereabouts, summarising: bool) -> Way:
        """The turn once more: with the question that is back in the composer, else from where the
        chat stands now."""
        last = self.session.steps[-1].turn if self.session.steps else None
        if summarising:
            return self._way("Try again", "summarise")
        if question == "back" or last is None:
            return Way("Try again", self.send)
        if last.role != "assistant" or last.finish == "stop":
            return self._way("Try again", "regenerate")
        return self._way("Go on with the answer", "proceed")

    def _new_way(self) -> Way:
        if self.draft.composer.empty:
            return self._way("New chat", "new")

        async def take_along() -> None:
            self.draft.carry()
            await self.host.run("new")

        return Way("New chat with this message", take_along)

    def _drop_way(self, plan: DropPlan, then: Then | None) -> Way:
        pairs = sum(step.turn.role == "user" for step in plan.steps)

        async def drop() -> None:
            before = len(self.session.questions)
            await self.host.run("drop_oldest", str(pairs))
            if len(self.session.questions) == before:
                return
            self.panel.dismiss()
            if then is not None:
                with self.messages.held():
                    await then[1]()

        what = oldest_words(self.session.questions, pairs) + (f" and {then[0]}" if then else "")
        cost = f"frees {slots(plan.freed_slots)}, reads {count(plan.reread_tokens)} again"
        return Way(f"Leave out {what} ({cost})", drop)

    def _drop_plan(self, room: int) -> DropPlan | None:
        """The smallest drop that leaves a question and `room` slots, or a tenth of all; else the
        largest. None where there is only one question, or the largest leaves less than `room`.
        For a worker thread."""
        conversation, most = self.session.conversation, len(self.session.questions) - 1
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

    def _can_be_summarised(self) -> bool:
        conversation = self.session.conversation
        return conversation is not None and conversation.can_be_summarised()

    def _fits_anew(self) -> bool:
        """Whether the draft, if there is one, fits a chat that holds nothing yet. For a worker
        thread."""
        text, attachments = self.draft.sendable
        if not (text or attachments):
            return True
        try:
            return self.session.workspace.new().forecast(text, attachments).fits
        except Q35Error:
            return False


def oldest_words(questions: list[Step], pairs: int) -> str:
    """The oldest questions in words: the first one's own, or how many."""
    if pairs > 1:
        return f"the oldest {pluralise(pairs, 'question')}"
    return f"“{one_line(questions[0].turn.text, 24) or 'picture'}”"
