"""Sending what the composer holds: at once, or as soon as what it waits for is there.

Knows nothing of keys, and of a turn only how to begin one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from q35chat.chat.values import Turn

if TYPE_CHECKING:
    from q35chat.chat.service import Conversation
    from q35chat.tui.screens.chat import ChatScreen


class Sending:
    """`queued`: Enter was pressed before everything was there; it is sent by itself then."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self.queued = False

    def forget(self) -> None:
        """Send nothing by itself."""
        if self.queued:
            self.queued = False
            self._screen.status.refresh()

    async def send(self) -> None:
        """Send what the composer holds, if anything, once everything it needs is there."""
        screen, conversation = self._screen, self._screen.ready
        if screen.generation.running:
            screen.status.say("the answer is still being written · Esc stops it, your text stays")
        elif screen.composer.empty:
            self.forget()
        elif conversation is None or screen.composer.chips.reading:
            self.queued = True
            screen.status.say(f"sends when {self._missing()} · Esc keeps it as a draft")
        else:
            await self._send(conversation)

    async def try_queued(self) -> None:
        """Something that was missing is there. What is a command by now is no message."""
        if self.queued and self._screen.is_command(self._screen.composer.editor.full_text):
            self.forget()
        elif self.queued:
            await self.send()

    def _missing(self) -> str:
        loader = self._screen.loader
        if self._screen.ready is not None:
            return "the picture is read"
        return "the chat is open" if loader.opening else "the model is loaded"

    async def _send(self, conversation: Conversation) -> None:
        self.queued = False
        screen, composer = self._screen, self._screen.composer
        refusal = screen.forecasting.refusal()
        if refusal is not None:
            await screen.panels.too_large(refusal)
            return
        text, attachments = composer.editor.full_text.strip(), composer.chips.attachments
        edited = screen.drafting.editing
        composer.editor.past.add(text)
        screen.drafting.sent()
        composer.put("")
        if edited is None:
            events = partial(conversation.send, text, attachments)
        else:
            events = partial(conversation.edit, edited, text, attachments)
        question = Turn("user", text, attachments)
        await screen.run_turn(events, partial(screen.transcript.begin, question, edited))
