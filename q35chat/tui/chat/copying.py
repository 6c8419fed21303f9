"""Copying from the conversation: an answer, any code block, everything."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from q35chat.chat.values import Turn
from q35chat.tui.markdown.source import CodeBlock, conversation_markdown, numbered_blocks
from q35chat.tui.text import one_line
from q35chat.user_input import typed_number

if TYPE_CHECKING:
    from q35chat.tui.app import ChatApp
    from q35chat.tui.screens.chat import ChatScreen


class Copying:
    """Copies what the chat screen shows, or says why there is nothing."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen

    async def blocks(self) -> list[CodeBlock]:
        """The code blocks by their numbers, from 1: those of the newest answer first. All answers
        are parsed for it, each once, and not in the screen's thread."""
        return await asyncio.to_thread(numbered_blocks, self._turns)

    def answer(self) -> None:
        """Copy the last answer."""
        answers = [turn.text for turn in self._turns if turn.role == "assistant"]
        if answers:
            self._copy(answers[-1], "the answer")
        else:
            self._screen.say("There is no answer to copy yet")

    async def code(self, number: str) -> None:
        """Copy the code block with this number; without one the only block, or ask which."""
        blocks = await self.blocks()
        if not blocks:
            self._screen.say("There is no code block to copy yet")
        elif number:
            self._numbered(number, blocks)
        elif len(blocks) == 1:
            self._block(blocks, 0)
        else:
            self._ask(blocks)

    def chat(self) -> None:
        """Copy everything."""
        conversation = self._screen.conversation
        if conversation is None or not self._turns:
            self._screen.say("There is nothing to copy yet")
        else:
            text = conversation_markdown(conversation.title, self._turns, conversation.summary)
            self._copy(text, "the chat")

    @property
    def _turns(self) -> list[Turn]:
        return [step.turn for step in self._screen.steps]

    def _ask(self, blocks: Sequence[CodeBlock]) -> None:
        from q35chat.tui.screens.blocks import BlocksScreen  # noqa: PLC0415

        def chosen(place: int | None) -> None:
            if place is not None:
                self._block(blocks, place)

        self._screen.app.push_screen(BlocksScreen(blocks), chosen)

    def _numbered(self, number: str, blocks: Sequence[CodeBlock]) -> None:
        typed = typed_number(number, len(blocks))
        if typed:
            self._block(blocks, typed - 1)
            return
        here = "1 is here" if len(blocks) == 1 else f"1 to {len(blocks)} are here"
        said = one_line(number, 40)
        self._screen.say(f"There is no code block “{said}”; {here}", error=True)

    def _block(self, blocks: Sequence[CodeBlock], place: int) -> None:
        which = "the code block" if len(blocks) == 1 else f"code block {place + 1}"
        self._copy(blocks[place].text, which)

    def _copy(self, text: str, what: str) -> None:
        cast("ChatApp", self._screen.app).copy(text, what)
