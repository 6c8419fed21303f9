"""The command palette: commands, code blocks, settings and themes by name, and what Enter takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import cast

from textual import events, on, work
from textual.app import ComposeResult
from textual.command import (
    CommandInput,
    CommandList,
    CommandPalette,
    DiscoveryHit,
    Hit,
    Hits,
    Provider,
)
from textual.markup import escape
from textual.widgets import Input
from textual.worker import Worker, WorkerError

from q35chat.text import pluralise
from q35chat.tui.application import application, key_of
from q35chat.tui.commands import COMMANDS
from q35chat.tui.fields import LIMIT_FIELDS, SAMPLING_FIELDS, thinking_fields
from q35chat.tui.markdown.source import CodeBlock
from q35chat.tui.screens.chat import ChatScreen
from q35chat.tui.screens.dialog import ClosesOnce
from q35chat.tui.sizes import HEIGHTS
from q35chat.tui.text import one_line
from q35chat.tui.widgets.key_order import LatestQuery, run_in_order
from q35chat.tui.widgets.options import Options

Line = tuple[str, str, str, Callable[[], Awaitable[None]]]
"""A line of the palette: what is searched, what is shown without a search, help, what it does."""


class CommandTable(Provider):
    """Everything the chat screen can do."""

    @property
    def _chat(self) -> ChatScreen:
        return cast("ChatScreen", self.screen)

    async def discover(self) -> Hits:
        """All commands, in the table's order."""
        for title, shown, words, run in self._commands():
            yield DiscoveryHit(shown, run, title, words)

    async def search(self, query: str) -> Hits:
        """Commands, code blocks, settings and themes whose title matches."""
        matcher = self.matcher(query)
        blocks = await self._chat.chats.code_blocks()
        lines = chain(self._commands(), self._blocks(blocks), self._settings(), self._themes())
        for title, _, words, run in lines:
            score = matcher.match(title)
            if score > 0:
                yield Hit(score, matcher.highlight(title), run, title, words)

    def _commands(self) -> Iterator[Line]:
        for command in COMMANDS:
            if command.id != "palette":
                key = key_of(self._chat, command.id)
                shown = f"{command.title}  ({escape(key)})" if key else command.title
                run = partial(self._chat.run_command, command.id)
                yield command.title, shown, command.help, run

    def _blocks(self, blocks: Sequence[CodeBlock]) -> Iterator[Line]:
        for number, block in enumerate(blocks, start=1):
            title = f"Copy code block {number}"
            facts = " · ".join(part for part in (block.language, pluralise(block.lines, "line"))
                               if part)  # fmt: skip
            words = escape(one_line(f"{facts} · {block.first_line}", 60))
            run = partial(self._chat.run_command, "copy_code", str(number))
            yield title, title, words, run

    def _settings(self) -> Iterator[Line]:
        model = self._chat.session.model
        offered = () if model is None else thinking_fields(model.offers)
        for field in (*SAMPLING_FIELDS, *LIMIT_FIELDS, *offered):
            run = partial(self._chat.run_command, "settings", field.id)
            yield field.label, field.label, escape(f"A setting of this chat: {field.help}"), run

    def _themes(self) -> Iterator[Line]:
        for name in sorted(self.app.available_themes):
            title = f"Theme {name}"
            dark = self.app.available_themes[name].dark
            words = f"{'Dark' if dark else 'Light'} colours, from now on in all chats"
            yield title, title, words, partial(self._wear, name)

    async def _wear(self, theme: str) -> None:
        application(self._chat).choose_theme(theme)


class _Search(CommandInput):
    """Its keys work in the order they were pressed."""

    async def _on_key(self, event: events.Key) -> None:
        await run_in_order(self, event)


class _Found(CommandList, Options, can_focus=False):
    """Its lines. Textual takes the style of the first base alone."""


class Palette(CommandPalette, ClosesOnce[None]):
    """Textual's, but Enter takes what the text finds, not what an earlier text had found."""

    VERTICAL_BREAKPOINTS = HEIGHTS

    def __init__(self) -> None:
        super().__init__(id="--command-palette")
        self._latest = LatestQuery()

    def compose(self) -> ComposeResult:
        """What Textual has, with a search and a list of our own."""
        for widget in super().compose():
            if isinstance(widget, CommandInput):
                yield _Search(placeholder=self._placeholder, select_on_focus=False)
            elif isinstance(widget, CommandList):
                yield _Found()
            else:
                yield widget

    def _gather_commands(self, search_value: str) -> Worker[None]:
        question = self._latest.ask(search_value)
        gathering = super()._gather_commands(search_value)
        self._follow(gathering, question)
        return gathering

    @work(exclusive=True, group="follow")
    async def _follow(self, gathering: Worker[None], question: int) -> None:
        try:
            await gathering.wait()
        except WorkerError:
            return
        if self._latest.is_newest(question):
            self._latest.arrived()

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        event.prevent_default()
        self._latest.then(event.value.strip(), self._select_or_command)
