"""Actions on chats and on what is shown of them: open, set, attach, copy, export, look, leave.

A dialog is imported when it is first opened: the first paint must not wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from q35chat.chat.service import ModelEntry
from q35chat.chat.values import Persona, Turn
from q35chat.errors import PictureError, Q35Error
from q35chat.tui.application import Application
from q35chat.tui.chat.draft import Draft
from q35chat.tui.chat.host import Host
from q35chat.tui.chat.loading import Loader
from q35chat.tui.chat.running_turn import RunningTurn
from q35chat.tui.chat.session import Session
from q35chat.tui.chat.view import obstacle, thinking_words
from q35chat.tui.commands import BY_ID
from q35chat.tui.markdown.source import CodeBlock, conversation_markdown, numbered_blocks
from q35chat.tui.notices import LONG_S
from q35chat.tui.text import cause, count, one_line
from q35chat.tui.widgets.messages import Severity
from q35chat.tui.widgets.transcript import Transcript
from q35chat.tui.workers import attempt
from q35chat.user_input import MOST, typed_number, typed_path, typed_picture

if TYPE_CHECKING:
    from q35chat.tui.exporting import MadeBundle
    from q35chat.tui.screens.confirm import ConfirmScreen

THINKING_BUDGET: Final = 512


@dataclass(eq=False)
class ChatActions:
    """`do_<id>` for the commands that begin no turn; each takes the argument of a slash command.

    `application` is asked for when it is needed: there is none before the screen is shown.
    """

    session: Session
    draft: Draft
    transcript: Transcript
    loader: Loader
    host: Host
    application: Callable[[], Application]
    _quitting: ConfirmScreen | None = field(default=None, init=False)

    # -- which chat

    async def do_new(self, _: str) -> None:
        """Start a new conversation."""
        self.loader.open(None)

    async def do_sessions(self, _: str) -> None:
        """Choose another conversation."""
        from q35chat.tui.screens.conversations import Chosen, ConversationsScreen  # noqa: PLC0415

        def opened(chosen: Chosen | None) -> None:
            self.loader.count_earlier()
            if chosen is not None and self._can("sessions"):
                self.loader.open(chosen.conversation_id, chosen.turn)

        def leave() -> None:
            self.draft.forget()
            self.loader.open(None)

        dialog = ConversationsScreen(
            self.session.workspace, self.session.current.id, leave, self._delete_for_good
        )
        self.application().push_screen(dialog, opened)

    async def do_versions(self, _: str) -> None:
        """Choose among all turns of all versions of this chat."""
        from q35chat.tui.screens.versions import VersionsScreen  # noqa: PLC0415

        conversation = self.session.current

        def chosen(turn: str | None) -> None:
            if turn is not None and self._can("versions"):
                self.loader.open(conversation.id, turn)

        places = conversation.places()
        if places:
            self.application().push_screen(VersionsScreen(places), chosen)
        else:
            self.host.say("There is no turn yet")

    def _delete_for_good(self, chats: Sequence[str]) -> None:
        """Delete chats with their drafts; that takes seconds where there are many."""

        def work() -> str:
            try:
                for chat in chats:
                    self.session.workspace.delete(chat)
                    self.draft.forget_chat(chat)
            except Q35Error as error:
                return str(error)
            return ""

        def say(problem: str) -> None:
            if problem:
                self.host.say(problem, "error")

        self.host.background("delete", work, say)

    def _can(self, command_id: str) -> bool:
        """Whether a command can still be run, now that its dialog closes; else that is said."""
        why_not = obstacle(self.session, BY_ID[command_id].when)
        if why_not:
            self.host.say(why_not)
        return not why_not

    async def do_setup(self, _: str) -> None:
        """Export a model and let it answer."""
        exporter = self.application().exporter
        if exporter is None:
            return

        from q35chat.tui.screens.setup import SetupScreen  # noqa: PLC0415

        def closed(made: MadeBundle | None) -> None:
            if made is not None and self._can("setup"):
                self.loader.use(made)

        self.application().push_screen(SetupScreen(exporter), closed)

    # -- its settings

    async def do_thinking(self, argument: str) -> None:
        """Turn thinking off, on, or give it a budget; without an argument go through them."""
        conversation = self.session.current
        settings = conversation.settings()
        if argument:
            chosen = _thinking_argument(argument)
            if chosen is None:
                self.host.say(_no_thinking(argument), "error", about="thinking")
                return
        elif not settings.thinking:
            chosen = (True, None)
        else:
            chosen = (True, THINKING_BUDGET) if settings.thinking_budget is None else (False, None)
        try:
            conversation.change_settings(settings.with_thinking(*chosen))
        except Q35Error as error:
            self.host.say(str(error), "error", about="thinking")
            return
        self.host.refresh()
        words = thinking_words(self.session)
        when = " from the next answer on" if self.session.running else ""
        self.host.say(f"{words[0].upper()}{words[1:]}{when}", about="thinking")

    async def do_model(self, argument: str) -> None:
        """Let another model answer, the named one or one of a list."""

        def listed(found: Sequence[ModelEntry]) -> None:
            entries = {entry.name: entry for entry in found}
            if argument in entries:
                self.loader.switch(entries[argument])
            elif argument or not entries:
                self.host.say(_no_model("model", argument, entries), "error")
            else:
                foot = "Enter lets it answer from now on · Esc closes"
                self._choose("Model", entries, foot, "model", self.loader.switch)

        self.host.background("models", self.session.workspace.models, listed)

    def _choose(
        self,
        title: str,
        entries: Mapping[str, ModelEntry],
        foot: str,
        command_id: str,
        use: Callable[[ModelEntry], None],
    ) -> None:
        from q35chat.tui.screens.choice import ChoiceScreen, Item  # noqa: PLC0415

        def chosen(name: str | None) -> None:
            if name is not None and self._can(command_id):
                use(entries[name])

        model = self.session.model
        now = "" if model is None else model.name
        items = [Item(it.name, it.facts, it.model == now) for it in entries.values()]
        self.application().push_screen(ChoiceScreen(title, items, foot), chosen)

    async def do_compare(self, argument: str) -> None:
        """Have another model answer the last question, the named one or one of a list."""
        if not self.session.questions:
            self.host.say("There is no question to compare answers of yet")
            return

        def listed(found: Sequence[ModelEntry]) -> None:
            model = self.session.model
            now = "" if model is None else model.name
            entries = {entry.name: entry for entry in found if entry.model != now}
            if argument in entries:
                self._compare(entries[argument])
            elif argument or not entries:
                self.host.say(_no_model("other model", argument, entries), "error")
            else:
                foot = "Enter asks it the last question · Esc closes"
                self._choose("Compare with", entries, foot, "compare", self._compare)

        self.host.background("models", self.session.workspace.models, listed)

    def _compare(self, entry: ModelEntry) -> None:
        from q35chat.tui.screens.compare import CompareScreen  # noqa: PLC0415

        conversation = self.session.current
        try:
            comparison = self.session.workspace.compare(conversation, entry.folder)
        except Q35Error as error:
            self.host.say(str(error), "error")
            return

        async def kept(failed: Exception | None) -> None:
            if failed is not None:
                self.host.say(cause(failed), "error")
                return
            await self.transcript.turn_to(conversation.steps)
            self.session.meter.idle(conversation)
            self.draft.forecast_soon()
            self.host.refresh()
            self.host.say(f"The answer of {entry.name} is a version, and is read from now on")

        def closed(right: bool | None) -> None:
            if right:
                self.host.background("keep", partial(attempt, comparison.keep), kept)

        self.application().push_screen(CompareScreen(conversation, comparison, entry.name), closed)

    async def do_persona(self, argument: str) -> None:
        """Go on as a persona says, the named one or one of a list."""
        personas = {persona.name: persona for persona in self.session.workspace.personas()}
        if argument in personas:
            self._become(personas[argument])
        elif argument or len(personas) <= 1:
            known = ", ".join(personas) or "none"
            wrong = f"There is no persona “{one_line(argument, 40)}”; " if argument else ""
            more = "more begin with [persona.NAME] in the settings file, which is read at the start"
            self.host.say(
                f"{wrong}{known} is there; {more}", "error" if argument else "information"
            )
        else:
            from q35chat.tui.screens.choice import ChoiceScreen, Item  # noqa: PLC0415

            def chosen(name: str | None) -> None:
                if name is not None and self._can("persona"):
                    self._become(personas[name])

            now = self.session.current.settings()
            items = [
                Item(name, persona.words, persona.over(now) == now)
                for name, persona in personas.items()
            ]
            dialog = ChoiceScreen("Persona", items, "Enter takes it · Esc closes")
            self.application().push_screen(dialog, chosen)

    def _become(self, persona: Persona) -> None:
        conversation = self.session.current
        try:
            conversation.change_settings(persona.over(conversation.settings()))
        except Q35Error as error:
            self.host.say(str(error), "error", about="persona")
            return
        self.host.refresh()
        self.draft.forecast_soon()
        when = " from the next answer on" if self.session.running else ""
        self.host.say(f"{persona.name}: {persona.words}{when}", about="persona")

    async def do_settings(self, argument: str) -> None:
        """Change how answers are made and how the screen looks, beginning at the named field."""
        from q35chat.tui.screens.settings import SettingsScreen  # noqa: PLC0415

        def closed(not_taken: str | None) -> None:
            self.host.refresh()
            if not_taken:
                self.host.say(not_taken, "error", about="settings")

        dialog = SettingsScreen(self.session.workspace, self.session.current, argument)
        self.application().push_screen(dialog, closed)

    # -- what goes in and out

    async def do_recall(self, argument: str) -> None:
        """Put an earlier question into the message."""
        from q35chat.tui.screens.questions import QuestionsScreen  # noqa: PLC0415

        def chosen(question: str | None) -> None:
            if question is not None:
                self.draft.composer.editor.take(question)

        dialog = QuestionsScreen(self.session.workspace.questions, argument)
        self.application().push_screen(dialog, chosen)

    async def do_edit_outside(self, _: str) -> None:
        """Write in the user's own editor; the whole application waits for it."""
        editor = self.draft.composer.editor
        written = self.application().edit_outside(editor.full_text)
        if written.problem:
            self.host.say(written.problem, "error", about="the editor")
        elif written.text != editor.full_text:
            editor.take(written.text)

    async def do_attach(self, argument: str) -> None:
        """Attach the named file, or choose one."""
        if argument:
            try:
                self.draft.attach((typed_picture(argument),))
            except PictureError as error:
                self.host.say(str(error), "error")
            return

        from q35chat.tui.screens.picker import PickerScreen  # noqa: PLC0415

        def picked(path: Path | None) -> None:
            if path is not None:
                self.draft.attach((path,))

        self.application().push_screen(PickerScreen(Path.cwd()), picked)

    async def do_attach_picture(self, argument: str) -> None:
        """The same by the name that it had before there were files."""
        await self.do_attach(argument)

    async def do_export(self, argument: str) -> None:
        """Write the conversation to a folder."""
        conversation = self.session.conversation
        if conversation is None or not conversation.steps:
            self.host.say("There is nothing to export yet")
            return
        folder = typed_path(argument or ".")
        export = partial(self.session.workspace.export_markdown, conversation.id, folder)

        def work() -> tuple[str, Severity]:
            try:
                return f"Written to {export()}", "information"
            except (Q35Error, OSError) as error:
                return str(error), "error"

        def say(said: tuple[str, Severity]) -> None:
            self.host.say(*said, about="the export")

        self.host.background("export", work, say)

    async def do_copy_answer(self, _: str) -> None:
        """Copy the last answer."""
        answers = [turn.text for turn in self._turns if turn.role == "assistant"]
        if answers:
            self.application().copy(answers[-1], "the answer")
        else:
            self.host.say("There is no answer to copy yet")

    async def do_copy_chat(self, _: str) -> None:
        """Copy everything."""
        conversation = self.session.conversation
        if conversation is None or not self._turns:
            self.host.say("There is nothing to copy yet")
        else:
            text = conversation_markdown(conversation.title, self._turns, conversation.summary)
            self.application().copy(text, "the chat")

    async def do_copy_code(self, number: str) -> None:
        """Copy the code block with this number; without one the only block, or ask which."""
        blocks = await self.code_blocks()
        typed = typed_number(number, len(blocks))
        if not blocks:
            self.host.say("There is no code block to copy yet")
        elif typed or (not number and len(blocks) == 1):
            self._copy_block(blocks, (typed or 1) - 1)
        elif number:
            here = "1 is here" if len(blocks) == 1 else f"1 to {len(blocks)} are here"
            said = one_line(number, 40)
            self.host.say(f"There is no code block “{said}”; {here}", "error")
        else:
            from q35chat.tui.screens.blocks import BlocksScreen  # noqa: PLC0415

            def chosen(place: int | None) -> None:
                if place is not None:
                    self._copy_block(blocks, place)

            self.application().push_screen(BlocksScreen(blocks), chosen)

    async def code_blocks(self) -> list[CodeBlock]:
        """The code blocks by their numbers, from 1: those of the newest answer first. All answers
        are parsed for it, each once, and not in the screen's thread."""
        return await asyncio.to_thread(numbered_blocks, self._turns)

    @property
    def _turns(self) -> list[Turn]:
        return [step.turn for step in self.session.steps]

    def _copy_block(self, blocks: Sequence[CodeBlock], place: int) -> None:
        which = "the code block" if len(blocks) == 1 else f"code block {place + 1}"
        self.application().copy(blocks[place].text, which)

    # -- reading

    async def do_reasoning(self, _: str) -> None:
        """Open or fold the reasoning on screen."""
        if not self.transcript.turn_reasoning():
            self.host.say("The answers on screen have no reasoning", about="reasoning")

    async def do_follow(self, _: str) -> None:
        """Go to the newest text."""
        await self.transcript.to_end()

    async def do_scroll_up(self, _: str) -> None:
        """One page up; at the top, earlier turns are loaded."""
        transcript = self.transcript
        if transcript.scroll_y <= 0 and transcript.hidden_before:
            await transcript.earlier()
        else:
            transcript.scroll_page_up(animate=False)

    async def do_scroll_down(self, _: str) -> None:
        """One page down; at the end of the window, later turns are loaded."""
        transcript = self.transcript
        if transcript.scroll_y >= transcript.max_scroll_y and transcript.hidden_after:
            await transcript.later()
        else:
            transcript.scroll_page_down(animate=False)

    async def do_earliest(self, _: str) -> None:
        """Load a page of earlier turns."""
        await self.transcript.earlier()

    # -- the application

    async def do_help(self, _: str) -> None:
        """Show all keys and commands."""
        from q35chat.tui.screens.help import HelpScreen  # noqa: PLC0415

        self.application().push_screen(HelpScreen(self.application().keymap), lambda _: None)

    async def do_palette(self, _: str) -> None:
        """Find a command by name."""
        self.application().action_command_palette()

    async def do_quit(self, _: str) -> None:
        """Leave; ask first while an answer is being written."""
        if self._quitting is not None:
            return
        if not self.session.running:
            self._leave()
            return
        self.draft.unqueue()
        self.draft.save_now()

        from q35chat.tui.screens.confirm import ConfirmScreen  # noqa: PLC0415

        def answered(leave: bool | None) -> None:
            self._quitting = None
            if leave:
                self._leave()

        question = "An answer is still being written. Stop it and quit?"
        self._quitting = ConfirmScreen(question, "What is written so far is kept.", "Stop and quit")
        self.application().push_screen(self._quitting, answered)

    def turn_ended(self, turn: RunningTurn) -> None:
        """A long answer is worth a notice. Who is being asked about a running answer is asked about
        none: their word still counts, and a key meant for the question never reaches the message
        behind it."""
        if turn.spent_s >= LONG_S:
            end = "failed" if turn.error is not None else "is complete"
            self.application().tell(f"q35chat: the answer {end}")
        if self._quitting is not None:
            self._quitting.ask_instead(
                "The answer has ended meanwhile. Quit?", "Everything is saved.", "Quit"
            )

    def _leave(self) -> None:
        self.draft.save_now()
        self.session.stop()
        self.session.workspace.leave()
        self.host.refresh()
        self.application().exit()


def _no_model(kind: str, argument: str, entries: Mapping[str, ModelEntry]) -> str:
    what = f"There is no {kind}" + (f" “{one_line(argument, 40)}”" if argument else "")
    there = f"; {', '.join(entries)} can be named" if entries else ""
    return f"{what}{there}; F9 exports one"


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
