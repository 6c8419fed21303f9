"""Which panel stands for which event, and the ways on that it offers."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from q35chat.chat.service import Forecast
from q35chat.errors import CapacityError, Q35Error
from q35chat.tui.text import count, one_line
from q35chat.tui.widgets.panel import Way

if TYPE_CHECKING:
    from q35chat.tui.screens.chat import ChatScreen


class Panels:
    """Shows panels on a chat screen."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen

    async def choose(self, index: int) -> None:
        """Take a way of the panel on screen, if there is one at this place."""
        ways = self._screen.panel.ways
        if index < len(ways):
            self._screen.panel.dismiss()
            result = ways[index].run()
            if inspect.isawaitable(result):
                await result

    async def load_failed(self, error: Exception, session: str | None) -> None:
        """The model or the conversation could not be opened."""
        screen = self._screen
        again = Way("Try again", lambda: screen.load(session))
        ways = (again, Way("Start a new conversation instead", lambda: screen.load(None)))
        await screen.panel.show(
            "error",
            "The model is not ready",
            _cause(error),
            ways if session else (again,),
        )
        screen.status.refresh()

    async def turn_failed(self, error: Exception) -> None:
        """A turn ended in an error; what was written stays."""
        if isinstance(error, CapacityError):
            await self._capacity("There is no room for this turn", _cause(error))
            return
        screen = self._screen
        await screen.panel.show(
            "error",
            "The answer failed; the conversation is safe",
            _cause(error),
            (Way("Restart the model and open this conversation again", self._restart),
             self._export_way()),
        )  # fmt: skip

    async def too_large(self, forecast: Forecast) -> None:
        """The draft does not fit."""
        free = forecast.left_for_answer + forecast.turn_slots if forecast.left_for_answer > 0 else 0
        reason = forecast.reason or f"it needs {count(forecast.turn_slots)} slots, {free} are free"
        await self._capacity("This turn does not fit", reason)

    async def capacity_reached(self) -> None:
        """The answer came to the end of the slots."""
        total = count(self._screen.meter.capacity.total)
        await self._capacity(
            "Capacity reached", f"All {total} slots are used. The answer so far is kept."
        )

    async def _capacity(self, title: str, text: str) -> None:
        ways = [Way("New conversation", lambda: self._screen.run_command("new"))]
        oldest = self.oldest_question()
        conversation = self._screen.conversation
        if oldest and conversation is not None:
            plan = conversation.plan_drop(1)
            cost = f"{count(plan.freed_slots)} slots free, {count(plan.reread_tokens)} read again"
            ways.append(Way(f"Leave out “{oldest}”: {cost}", self._drop))
        ways.append(
            Way("New conversation from a summary", lambda: self._screen.run_command("summarise"))
        )
        ways.append(self._export_way())
        await self._screen.panel.show("warning", title, text, tuple(ways))
        self._screen.status.warn()

    def oldest_question(self) -> str:
        """The first question, shortened; empty when leaving it out would leave nothing."""
        questions = [
            step for step in self._screen.steps if step.turn.role == "user" and not step.left_out
        ]
        if len(questions) < 2:
            return ""
        return one_line(questions[0].turn.text, 30) or "picture"

    async def _drop(self) -> None:
        await self._screen.run_command("drop_oldest")

    def _export_way(self) -> Way:
        return Way("Export to Markdown", lambda: self._screen.run_command("export"))

    def _restart(self) -> None:
        conversation = self._screen.conversation
        self._screen.load(conversation.id if conversation is not None else None)


def _cause(error: Exception) -> str:
    if isinstance(error, Q35Error):
        return str(error)
    return f"Unexpected {type(error).__name__}: {error}"
