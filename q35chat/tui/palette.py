"""The command table and the code blocks in the command palette."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.markup import escape

from q35chat.counting import counted
from q35chat.tui.commands import COMMANDS
from q35chat.tui.text import one_line

if TYPE_CHECKING:
    from q35chat.tui.screens.chat import ChatScreen


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line of the palette: what is searched, what is shown without a search, what it does."""

    title: str
    shown: str
    help: str
    run: Callable[[], Awaitable[None]]


class CommandTable(Provider):
    """Everything the chat screen can do."""

    @property
    def _chat(self) -> ChatScreen:
        return cast("ChatScreen", self.screen)

    async def discover(self) -> Hits:
        """All commands, in the table's order."""
        for entry in self._commands():
            yield DiscoveryHit(entry.shown, entry.run, entry.title, entry.help)

    async def search(self, query: str) -> Hits:
        """Commands and code blocks whose title matches."""
        matcher = self.matcher(query)
        for entry in (*self._commands(), *self._blocks()):
            score = matcher.match(entry.title)
            if score > 0:
                title = matcher.highlight(entry.title)
                yield Hit(score, title, entry.run, entry.title, entry.help)

    def _commands(self) -> Iterator[_Entry]:
        for command in COMMANDS:
            if command.id != "palette":
                key = self._chat.commands.key(command.id)
                shown = f"{command.title}  ({escape(key)})" if key else command.title
                run = partial(self._chat.run_command, command.id)
                yield _Entry(command.title, shown, command.help, run)

    def _blocks(self) -> Iterator[_Entry]:
        for number, block in enumerate(self._chat.copying.blocks, start=1):
            title = f"Copy code block {number}"
            facts = " · ".join(part for part in (block.language, counted(block.lines, "line"))
                               if part)  # fmt: skip
            help_text = escape(one_line(f"{facts} · {block.first_line}", 60))
            run = partial(self._chat.run_command, "copy_code", str(number))
            yield _Entry(title, title, help_text, run)
