"""The command table in the command palette."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from q35chat.tui.commands import COMMANDS

if TYPE_CHECKING:
    from q35chat.tui.screens.chat import ChatScreen


class CommandTable(Provider):
    """Everything the chat screen can do."""

    @property
    def _chat(self) -> ChatScreen:
        return cast("ChatScreen", self.screen)

    async def discover(self) -> Hits:
        """All commands, in the table's order."""
        for command in COMMANDS:
            if command.id != "palette":
                run = partial(self._chat.run_command, command.id)
                yield DiscoveryHit(self._title(command.id, command.title), run, command.title,
                                   command.help)  # fmt: skip

    async def search(self, query: str) -> Hits:
        """Commands whose title matches."""
        matcher = self.matcher(query)
        for command in COMMANDS:
            score = matcher.match(command.title)
            if score > 0 and command.id != "palette":
                run = partial(self._chat.run_command, command.id)
                yield Hit(score, matcher.highlight(command.title), run, command.title, command.help)

    def _title(self, command_id: str, title: str) -> str:
        key = self._chat.commands.key(command_id)
        return f"{title}  ({key})" if key else title
