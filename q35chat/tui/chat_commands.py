"""What each command of the table does on the chat screen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from q35chat.chat.service import Conversation
from q35chat.errors import Q35Error
from q35chat.tui.commands import Command
from q35chat.tui.exporting import Made
from q35chat.tui.screens.confirm import ConfirmScreen
from q35chat.tui.screens.help import HelpScreen
from q35chat.tui.screens.picker import PickerScreen
from q35chat.tui.screens.sessions import SessionsScreen
from q35chat.tui.screens.settings import SettingsScreen
from q35chat.tui.screens.setup import SetupScreen
from q35chat.tui.text import count, slots

if TYPE_CHECKING:
    from q35chat.tui.app import ChatApp
    from q35chat.tui.screens.chat import ChatScreen

THINKING_BUDGET: Final = 512
_BUSY: Final = "The answer is still being written; Esc stops it first"
_LOADING: Final = "The model is still loading"


class ChatCommands:
    """`do_<id>` for every command; each takes the argument of a slash command."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen

    @property
    def _app(self) -> ChatApp:
        return cast("ChatApp", self._screen.app)

    async def run(self, command: Command, argument: str) -> None:
        """Run one command."""
        action: Callable[[str], Awaitable[None]] = getattr(self, f"do_{command.id}")
        await action(argument)

    def key(self, command_id: str) -> str:
        """The key of a command as the user's settings have it."""
        return self._app.keymap.label(command_id)

    def thinking_words(self) -> str:
        """How thinking is set, for the status line."""
        conversation = self._screen.conversation
        if conversation is None or self._screen.loader.running:
            return "loading the model… you can write already"
        settings = conversation.settings()
        if not settings.thinking:
            return "thinking off"
        if settings.thinking_budget is None:
            return "thinking on"
        return f"thinking on, at most {count(settings.thinking_budget)} tokens"

    def _idle(self) -> Conversation | None:
        """The conversation, if it is there and nothing runs; else says why not."""
        if self._screen.conversation is None or self._screen.loader.running:
            self._screen.say(_LOADING)
        elif self._screen.generation.running:
            self._screen.say(_BUSY)
        else:
            return self._screen.conversation
        return None

    async def do_stop(self, _: str) -> None:
        """Stop the turn; else take back the most recent thing that waits."""
        screen = self._screen
        if screen.generation.running:
            screen.stop_turn()
        elif screen.panel.display:
            screen.panel.dismiss()
            screen.status.refresh()
        elif screen.queued:
            screen.queued = False
            screen.status.refresh()
        elif not await screen.drafting.cancel_edit():
            screen.composer.editor.focus()

    async def do_regenerate(self, _: str) -> None:
        """Answer the last question again."""
        conversation = self._idle()
        if conversation is None:
            return
        if not conversation.steps:
            self._screen.say("There is no answer to regenerate yet")
            return
        last = conversation.steps[-1]
        if last.turn.role == "assistant":
            await self._screen.transcript.cut_from(last.id)
        await self._screen.run_turn(conversation.regenerate, None)

    async def do_proceed(self, _: str) -> None:
        """Go on with the last answer."""
        conversation = self._idle()
        if conversation is None:
            return
        last = conversation.steps[-1] if conversation.steps else None
        if last is None or last.turn.role != "assistant" or last.turn.finish == "stop":
            self._screen.say("The last answer is complete; there is nothing to continue")
            return
        view = await self._screen.transcript.reopen_last()
        if view is not None:
            await self._screen.run_turn(conversation.continue_answer, None, view)

    async def do_edit(self, _: str) -> None:
        """Change an earlier question."""
        if self._idle() is not None:
            self._screen.panel.dismiss()
            await self._screen.drafting.edit_earlier()

    async def do_branch_back(self, _: str) -> None:
        """Show the earlier answer."""
        await self._branch(-1)

    async def do_branch_forward(self, _: str) -> None:
        """Show the later answer."""
        await self._branch(1)

    async def _branch(self, by: int) -> None:
        conversation = self._idle()
        if conversation is None:
            return
        forked = [step for step in conversation.steps if step.branches > 1]
        if not forked:
            self._screen.say("There is only one answer; Ctrl+R makes another")
            return
        step = forked[-1]
        conversation.choose_branch(step.id, (step.branch + by) % step.branches)
        await self._resettle(conversation)

    async def do_drop_oldest(self, argument: str) -> None:
        """Leave out the oldest question and answer, or so many of them."""
        conversation = self._idle()
        if conversation is None:
            return
        most = len(self._screen.panels.questions()) - 1
        pairs = int(argument) if argument.isdecimal() else 0 if argument else 1
        if most < 1:
            self._screen.say("There is only one turn; leaving it out would leave nothing")
        elif not 0 < pairs <= most:
            self._screen.say(f"“{argument}” is not a number from 1 to {most}", error=True)
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
        await self._resettle(conversation)
        self._screen.forecasting.forget()
        self._screen.forecasting.soon()
        freed = max(0, before - conversation.used_slots)
        won = f"; {slots(freed)} are free again" if freed else ""
        self._screen.say(f"Left out {which}{won}")

    async def _resettle(self, conversation: Conversation) -> None:
        await self._screen.transcript.settle(conversation.steps)
        self._screen.meter.idle(conversation.model, conversation.used_slots)
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
        await self._screen.run_turn(lambda: events, None)

    async def do_new(self, _: str) -> None:
        """Start a new conversation."""
        if self._idle() is not None:
            self._screen.open_conversation(None)

    async def do_sessions(self, _: str) -> None:
        """Choose another conversation."""
        conversation = self._idle()
        if conversation is None:
            return

        def opened(session: str | None) -> None:
            if session is not None:
                self._screen.open_conversation(session)

        self._app.push_screen(SessionsScreen(self._screen.workspace, conversation.id), opened)

    async def do_thinking(self, argument: str) -> None:
        """Turn thinking off, on, or give it a budget; without an argument go through them."""
        conversation = self._screen.conversation
        if conversation is None:
            self._screen.say(_LOADING)
            return
        settings = conversation.settings()
        if argument:
            chosen = _thinking_argument(argument)
            if chosen is None:
                self._screen.say(f"“{argument}” is not off, on or a number of tokens", error=True)
                return
        elif not settings.thinking:
            chosen = (True, None)
        else:
            chosen = (True, THINKING_BUDGET) if settings.thinking_budget is None else (False, None)
        try:
            conversation.change_settings(settings.with_thinking(*chosen))
        except Q35Error as error:
            self._screen.say(str(error), error=True)
            return
        self._screen.status.refresh()
        words = self.thinking_words()
        when = " from the next answer on" if self._screen.generation.running else ""
        self._screen.say(f"{words[0].upper()}{words[1:]}{when}")

    async def do_attach(self, argument: str) -> None:
        """Attach the named picture, or choose one."""
        if argument:
            await self._screen.attach((Path(argument).expanduser(),))
            return

        async def picked(path: Path | None) -> None:
            if path is not None:
                await self._screen.attach((path,))

        self._app.push_screen(PickerScreen(Path.cwd()), picked)

    async def do_copy_answer(self, _: str) -> None:
        """Copy the last answer."""
        self._screen.copying.answer()

    async def do_copy_code(self, argument: str) -> None:
        """Copy the code block with this number, or ask which."""
        self._screen.copying.code(argument)

    async def do_copy_chat(self, _: str) -> None:
        """Copy everything."""
        self._screen.copying.chat()

    async def do_export(self, argument: str) -> None:
        """Write the conversation to a folder."""
        conversation = self._screen.conversation
        if conversation is None or not conversation.steps:
            self._screen.say("There is nothing to export yet")
            return
        folder = Path(argument or ".").expanduser()
        session = conversation.id

        def work() -> None:
            try:
                path = self._screen.workspace.export_markdown(session, folder)
            except (Q35Error, OSError) as error:
                self._screen.call_later(self._screen.say, str(error), error=True)
            else:
                self._screen.call_later(self._screen.say, f"Written to {path}")

        self._screen.run_worker(work, thread=True, group="export")

    async def do_follow(self, _: str) -> None:
        """Go to the newest text."""
        await self._screen.transcript.to_end()

    async def do_scroll_up(self, _: str) -> None:
        """One page up; at the top, earlier turns are loaded."""
        transcript = self._screen.transcript
        if transcript.scroll_y <= 0 and transcript.hidden_before:
            await transcript.earlier()
        else:
            transcript.scroll_page_up(animate=False)

    async def do_scroll_down(self, _: str) -> None:
        """One page down; at the end of the window, later turns are loaded."""
        transcript = self._screen.transcript
        if transcript.scroll_y >= transcript.max_scroll_y and transcript.hidden_after:
            await transcript.later()
        else:
            transcript.scroll_page_down(animate=False)

    async def do_earliest(self, _: str) -> None:
        """Load a page of earlier turns."""
        await self._screen.transcript.earlier()

    async def do_setup(self, _: str) -> None:
        """Export a model and let it answer."""
        screen, exporter = self._screen, self._app.exporter
        if screen.generation.running:
            screen.say(_BUSY)
        elif screen.loader.running:
            screen.say(_LOADING)
        elif exporter is not None:

            def closed(made: Made | None) -> None:
                if made is not None:
                    screen.loader.use(made)

            self._app.push_screen(SetupScreen(exporter), closed)

    async def do_settings(self, _: str) -> None:
        """Change how answers are made and how the screen looks."""
        conversation = self._screen.conversation
        if conversation is None:
            self._screen.say(_LOADING)
            return

        def closed(_: None) -> None:
            self._screen.status.refresh()

        self._app.push_screen(SettingsScreen(conversation), closed)

    async def do_help(self, _: str) -> None:
        """Show all keys and commands."""
        self._app.push_screen(HelpScreen(self._app.keymap))

    async def do_palette(self, _: str) -> None:
        """Find a command by name."""
        self._app.action_command_palette()

    async def do_quit(self, _: str) -> None:
        """Leave; ask first while an answer is being written."""
        screen = self._screen
        screen.drafting.changed()
        screen.drafting.save_now()
        if not screen.generation.running:
            self._app.exit()
            return

        def answered(leave: bool | None) -> None:
            if leave:
                screen.stop_turn()
                self._app.exit()

        question = "An answer is still being written. Stop it and quit?"
        self._app.push_screen(
            ConfirmScreen(question, "What is written so far is kept.", "Stop and quit"), answered
        )


def _thinking_argument(argument: str) -> tuple[bool, int | None] | None:
    match argument.lower():
        case "off":
            return False, None
        case "on":
            return True, None
        case number if number.isdecimal() and int(number) > 0:
            return True, int(number)
    return None
