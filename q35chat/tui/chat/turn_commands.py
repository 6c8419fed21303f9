"""What the commands do that change or answer the turns of the conversation."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from q35chat.chat.service import Conversation
from q35chat.errors import Q35Error
from q35chat.tui.text import one_line, slots
from q35chat.user_input import typed_number

if TYPE_CHECKING:
    from q35chat.tui.screens.chat import ChatScreen

BUSY: Final = "The answer is still being written; Esc stops it first"
_LOADING: Final = "The model is still loading"
_OPENING: Final = "The chat is still being opened"
_ABSENT: Final = "There is no model yet; the panel says why"


class TurnCommands:
    """Their `do_<id>`; each takes the argument of a slash command."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen

    def _not_there(self) -> str:
        """Why no model answers."""
        if self._screen.loader.opening:
            return _OPENING
        return _ABSENT if self._screen.loader.failed else _LOADING

    def busy(self) -> bool:
        """Whether something runs that has to end first; then that is said."""
        if self._screen.loader.running:
            self._screen.say(self._not_there())
        elif self._screen.generation.running:
            self._screen.say(BUSY)
        else:
            return False
        return True

    def _idle(self) -> Conversation | None:
        """The conversation, if it is there and nothing runs; else says why not."""
        conversation = self._screen.conversation
        if self.busy():
            return None
        if conversation is None:
            self._screen.say(self._not_there())
        return conversation

    async def do_stop(self, _: str) -> None:
        """Stop the turn; else take back the most recent thing that waits."""
        screen = self._screen
        if screen.generation.running:
            screen.stop_turn()
        elif screen.panel.display:
            screen.panel.dismiss()
            screen.status.refresh()
        elif screen.sending.queued:
            screen.sending.forget()
        elif not screen.drafting.cancel_edit():
            screen.composer.editor.focus()

    async def do_regenerate(self, _: str) -> None:
        """Answer the last question again."""
        conversation = self._idle()
        if conversation is None:
            return
        if not conversation.steps:
            self._screen.say("There is no answer to regenerate yet")
            return
        last, transcript = conversation.steps[-1], self._screen.transcript
        former = last.id if last.turn.role == "assistant" else None
        await self._screen.run_turn(
            conversation.regenerate, partial(transcript.begin, None, former)
        )

    async def do_proceed(self, _: str) -> None:
        """Go on with the last answer."""
        conversation = self._idle()
        if conversation is None:
            return
        last = conversation.steps[-1] if conversation.steps else None
        if last is None or last.turn.role != "assistant" or last.turn.finish == "stop":
            self._screen.say("The last answer is complete; there is nothing to continue")
            return
        await self._screen.run_turn(
            conversation.continue_answer, self._screen.transcript.reopen_last
        )

    async def do_edit(self, _: str) -> None:
        """Change an earlier question."""
        if self._idle() is not None:
            self._screen.panel.dismiss()
            self._screen.sending.forget()
            self._screen.drafting.edit_earlier()

    async def do_branch_back(self, _: str) -> None:
        """Show the version of the chat before this one."""
        await self._branch(-1)

    async def do_branch_forward(self, _: str) -> None:
        """Show the version of the chat after this one."""
        await self._branch(1)

    async def _branch(self, by: int) -> None:
        conversation = self._idle()
        if conversation is None:
            return
        last = conversation.steps[-1] if conversation.steps else None
        if last is None or last.branches == 1:
            self._screen.say("There is only one version; a retry or an edit makes another")
            return
        try:
            conversation.choose_branch((last.branch + by) % last.branches)
        except Q35Error as error:
            self._screen.say(str(error), error=True)
            return
        await self._screen.transcript.turn_to(conversation.steps)
        self._settled(conversation)

    async def do_drop_oldest(self, argument: str) -> None:
        """Leave out the oldest question and answer, or so many of them."""
        conversation = self._idle()
        if conversation is None:
            return
        most = len(self._screen.panels.questions()) - 1
        pairs = typed_number(argument, most) if argument else 1
        if most < 1:
            self._screen.say("There is only one turn; leaving it out would leave nothing")
        elif not pairs:
            said = one_line(argument, 40)
            self._screen.say(f"“{said}” is not a number from 1 to {most}", error=True)
        else:
            await self._drop(conversation, pairs)

    async def _drop(self, conversation: Conversation, pairs: int) -> None:
        which = self._screen.panels.oldest(pairs)
        before = conversation.used_slots
        try:
            conversation.drop_oldest(pairs)
        except Q35Error as error:
            self._screen.say(str(error), error=True)
            return
        await self._screen.transcript.synchronise(conversation.steps)
        self._settled(conversation)
        freed = max(0, before - conversation.used_slots)
        won = f"; {slots(freed)} are free again" if freed else ""
        self._screen.say(f"Left out {which}{won}")

    def _settled(self, conversation: Conversation) -> None:
        self._screen.meter.idle(conversation)
        self._screen.forecasting.forget()
        self._screen.forecasting.soon()
        self._screen.status.refresh()

    async def do_summarise(self, _: str) -> None:
        """Let the model write a summary, then go on in a new conversation that starts from it."""
        conversation = self._idle()
        if conversation is None:
            return
        if not conversation.steps:
            self._screen.say("There is nothing to sum up yet")
            return
        fresh, events = self._screen.workspace.new_from_summary(conversation)
        self._screen.then_open = fresh
        await self._screen.run_turn(lambda: events, partial(self._screen.transcript.begin, None))
