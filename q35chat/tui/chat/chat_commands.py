"""What each command of the table does on the chat screen; `TurnCommands` holds those for turns.

A dialog is imported when it is first opened: the first paint must not wait for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from q35chat.chat.service import Conversation
from q35chat.errors import Q35Error
from q35chat.tui.chat.turn_commands import TurnCommands
from q35chat.tui.commands import Command
from q35chat.tui.text import count, one_line
from q35chat.user_input import MOST, typed_number, typed_path

if TYPE_CHECKING:
    from q35chat.tui.app import ChatApp
    from q35chat.tui.exporting import Made
    from q35chat.tui.screens.chat import ChatScreen
    from q35chat.tui.screens.confirm import ConfirmScreen

THINKING_BUDGET: Final = 512


class ChatCommands(TurnCommands):
    """`do_<id>` for every command; each takes the argument of a slash command."""

    def __init__(self, screen: ChatScreen) -> None:
        super().__init__(screen)
        self._quitting: ConfirmScreen | None = None

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
        if self._screen.loader.opening:
            return "opening the chat… · you can write already"
        if conversation is None or self._screen.loader.running:
            absent = "no model" if self._screen.loader.failed else "loading the model…"
            return f"{absent} · you can write already"
        settings = conversation.settings()
        if not settings.thinking:
            return "thinking off"
        if settings.thinking_budget is None:
            return "thinking on"
        return f"thinking on, at most {count(settings.thinking_budget)} tokens"

    async def do_new(self, _: str) -> None:
        """Start a new conversation."""
        if self._idle() is not None:
            self._screen.loader.open(None)

    async def do_sessions(self, _: str) -> None:
        """Choose another conversation."""
        conversation = self._idle()
        if conversation is None:
            return

        from q35chat.tui.screens.sessions import SessionsScreen  # noqa: PLC0415

        def opened(session: str | None) -> None:
            self._screen.look_for_earlier()
            if session is not None and self._idle() is not None:
                self._screen.loader.open(session)

        self._app.push_screen(SessionsScreen(self._screen.workspace, conversation.id), opened)

    def _changeable(self) -> Conversation | None:
        """The conversation whose settings are meant now; else says why there is none."""
        if self._screen.conversation is None or self._screen.loader.opening:
            self._screen.say(self._not_there())
            return None
        return self._screen.conversation

    async def do_thinking(self, argument: str) -> None:
        """Turn thinking off, on, or give it a budget; without an argument go through them."""
        conversation = self._changeable()
        if conversation is None:
            return
        settings = conversation.settings()
        if argument:
            chosen = _thinking_argument(argument)
            if chosen is None:
                self._screen.say(_no_thinking(argument), error=True, about="thinking")
                return
        elif not settings.thinking:
            chosen = (True, None)
        else:
            chosen = (True, THINKING_BUDGET) if settings.thinking_budget is None else (False, None)
        try:
            conversation.change_settings(settings.with_thinking(*chosen))
        except Q35Error as error:
            self._screen.say(str(error), error=True, about="thinking")
            return
        self._screen.status.refresh()
        words = self.thinking_words()
        when = " from the next answer on" if self._screen.generation.running else ""
        self._screen.say(f"{words[0].upper()}{words[1:]}{when}", about="thinking")

    async def do_attach(self, argument: str) -> None:
        """Attach the named picture, or choose one."""
        if argument:
            self._screen.attaching.add((typed_path(argument),))
            return

        from q35chat.tui.screens.picker import PickerScreen  # noqa: PLC0415

        def picked(path: Path | None) -> None:
            if path is not None:
                self._screen.attaching.add((path,))

        self._app.push_screen(PickerScreen(Path.cwd()), picked)

    async def do_reasoning(self, _: str) -> None:
        """Open or fold the reasoning on screen."""
        if not self._screen.transcript.turn_reasoning():
            self._screen.say("The answers on screen have no reasoning", about="reasoning")

    async def do_meters(self, _: str) -> None:
        """All meters where one line of them is, and the other way round; narrow and wide screens
        each keep their way."""
        narrow = self._screen.has_class("-narrow")
        self._screen.toggle_class("-panel-too" if narrow else "-line-only")
        self._screen.call_after_refresh(self._screen.status.show_meters)

    async def do_copy_answer(self, _: str) -> None:
        """Copy the last answer."""
        self._screen.copying.answer()

    async def do_copy_code(self, argument: str) -> None:
        """Copy the code block with this number, or ask which."""
        await self._screen.copying.code(argument)

    async def do_copy_chat(self, _: str) -> None:
        """Copy everything."""
        self._screen.copying.chat()

    async def do_export(self, argument: str) -> None:
        """Write the conversation to a folder."""
        conversation = self._screen.conversation
        if conversation is None or not conversation.steps:
            self._screen.say("There is nothing to export yet")
            return
        folder = typed_path(argument or ".")
        session, said = conversation.id, partial(self._screen.say, about="the export")

        def work() -> None:
            try:
                path = self._screen.workspace.export_markdown(session, folder)
            except (Q35Error, OSError) as error:
                self._screen.call_later(said, str(error), error=True)
            else:
                self._screen.call_later(said, f"Written to {path}")

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
        if not self.busy() and exporter is not None:
            from q35chat.tui.screens.setup import SetupScreen  # noqa: PLC0415

            def closed(made: Made | None) -> None:
                if made is not None and not self.busy():
                    screen.loader.use(made)

            self._app.push_screen(SetupScreen(exporter), closed)

    async def do_settings(self, _: str) -> None:
        """Change how answers are made and how the screen looks."""
        conversation = self._changeable()
        if conversation is None:
            return

        from q35chat.tui.screens.settings import SettingsScreen  # noqa: PLC0415

        def closed(not_taken: str | None) -> None:
            self._screen.status.refresh()
            if not_taken:
                self._screen.say(not_taken, error=True, about="settings")

        self._app.push_screen(SettingsScreen(conversation), closed)

    async def do_help(self, _: str) -> None:
        """Show all keys and commands."""
        from q35chat.tui.screens.help import HelpScreen  # noqa: PLC0415

        self._app.push_screen(HelpScreen(self._app.keymap))

    async def do_palette(self, _: str) -> None:
        """Find a command by name."""
        self._app.action_command_palette()

    async def do_quit(self, _: str) -> None:
        """Leave; ask first while an answer is being written."""
        if self._quitting is not None:
            return
        if not self._screen.generation.running:
            self._leave()
            return
        self._keep_draft()

        from q35chat.tui.screens.confirm import ConfirmScreen  # noqa: PLC0415

        def answered(leave: bool | None) -> None:
            self._quitting = None
            if leave:
                self._leave()

        question = "An answer is still being written. Stop it and quit?"
        self._quitting = ConfirmScreen(question, "What is written so far is kept.", "Stop and quit")
        self._app.push_screen(self._quitting, answered)

    def turn_ended(self) -> None:
        """Who is being asked about a running answer is asked about none: their word still counts,
        and a key meant for the question never reaches the message behind it."""
        if self._quitting is not None:
            self._quitting.ask_instead(
                "The answer has ended meanwhile. Quit?", "Everything is saved.", "Quit"
            )

    def _leave(self) -> None:
        self._keep_draft()
        if self._screen.generation.running:
            self._screen.stop_turn()
        self._app.exit()

    def _keep_draft(self) -> None:
        self._screen.drafting.changed()
        self._screen.drafting.save_now()


def _no_thinking(argument: str) -> str:
    said = f"“{one_line(argument, 40)}”"
    if argument.isdecimal():
        return f"{said}: thinking takes 1 to {count(MOST)} tokens; /think off turns it off"
    return f"{said} is not off, on or a number of tokens"


def _thinking_argument(argument: str) -> tuple[bool, int | None] | None:
    match argument.lower():
        case "off":
            return False, None
        case "on":
            return True, None
        case number:
            budget = typed_number(number)
            return (True, budget) if budget else None
